#include "gipo/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "gipo/core/error.h"

namespace gipo::cli {
namespace {

using Commands = std::vector<CompletedCommand>;
using Kind = CompletedValue::Kind;

std::string parent_of(const std::string& path) {
  const std::size_t space = path.rfind(' ');
  return space == path.npos ? "" : path.substr(0, space);
}
std::string last_word(const std::string& path) { return path.substr(path.rfind(' ') + 1); }

std::vector<const CompletedCommand*> below(const Commands& commands, const std::string& path) {
  std::vector<const CompletedCommand*> found;
  for (const CompletedCommand& c : commands) {
    if (!c.path.empty() && parent_of(c.path) == path) found.push_back(&c);
  }
  return found;
}

std::string names_of(const std::vector<const CompletedCommand*>& commands) {
  std::string names;
  for (const CompletedCommand* c : commands) names += (names.empty() ? "" : " ") + last_word(c->path);
  return names;
}

std::string replaced(const std::string& text, const std::map<char, std::string>& with) {
  std::string out;
  for (const char c : text) {
    const auto it = with.find(c);
    out += it == with.end() ? std::string(1, c) : it->second;
  }
  return out;
}

// Keys that wait for their value: no space follows.
bool is_open(const CompletedValue& value) { return value.choices.front().ends_with('='); }

// The commands as patterns: "study gridworld".
std::string patterns_of(const Commands& commands) {
  std::string patterns;
  for (const CompletedCommand& c : commands) {
    if (c.path.empty()) continue;
    patterns += fmt::format("{}\"{} {}\"", patterns.empty() ? "" : " | ", parent_of(c.path), last_word(c.path));
  }
  return patterns;
}

// What is offered for a value, as a statement of bash.
std::string bash_reply(const CompletedValue& value) {
  switch (value.kind) {
    case Kind::kPath:
      return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$current\")";
    case Kind::kChoice:
      return fmt::format("{}mapfile -t COMPREPLY < <(compgen -W \"{}\" -- \"$current\")",
                         is_open(value) ? "compopt -o nospace; " : "", fmt::join(value.choices, " "));
    default:
      return "COMPREPLY=()";
  }
}

std::string bash_script(const Commands& commands) {
  std::string values, options, places;
  for (const CompletedCommand& c : commands) {
    std::string names;
    for (const CompletedOption& o : c.options) {
      names += (names.empty() ? "" : " ") + o.name;
      if (o.value.kind == Kind::kNone) continue;
      values += fmt::format("    \"{} {}\")\n      {}\n      return\n      ;;\n", c.path, o.name, bash_reply(o.value));
    }
    options += fmt::format("      \"{}\") names=\"{}\" ;;\n", c.path, names);
    const auto inner = below(commands, c.path);
    CompletedValue place = c.place;
    if (!inner.empty()) place = {Kind::kChoice, {names_of(inner)}};
    places += fmt::format("      \"{}\") {} ;;\n", c.path, bash_reply(place));
  }
  return fmt::format(R"sh(# What bash completes for gipo. Put `eval "$(gipo completion bash)"` into ~/.bashrc.
_gipo() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}" command="" names="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command $word" in
      {}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command $previous" in
{}  esac
  if [[ "$current" == -* ]]; then
    case "$command" in
{}    esac
    mapfile -t COMPREPLY < <(compgen -W "$names" -- "$current")
  else
    case "$command" in
{}    esac
  fi
}}
complete -F _gipo gipo
)sh",
                     patterns_of(commands), values, options, places);
}

std::string zsh_quoted(const std::string& text) {
  return replaced(text, {{'\'', "'\\''"}, {'[', "\\["}, {']', "\\]"}, {':', "\\:"}});
}

// The part of a specification of _arguments that says what a value is.
std::string zsh_value(const CompletedValue& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "";
    case Kind::kPath:
      return ":file:_files";
    case Kind::kChoice:
      return is_open(value) ? fmt::format(":value:{{compadd -S \"\" -- {}}}", fmt::join(value.choices, " "))
                            : fmt::format(":value:({})", fmt::join(value.choices, " "));
    case Kind::kText:
      break;
  }
  return ":value: ";
}

std::string zsh_script(const Commands& commands) {
  std::string cases;
  for (const CompletedCommand& c : commands) {
    std::string words;
    for (const CompletedOption& o : c.options) {
      words += fmt::format(" \\\n        '*{}[{}]{}'", o.name, zsh_quoted(o.help), zsh_value(o.value));
    }
    const auto inner = below(commands, c.path);
    if (!inner.empty()) {
      std::string names;
      for (const CompletedCommand* i : inner)
        names += fmt::format(" {}\\:\"{}\"", last_word(i->path), zsh_quoted(i->help));
      words += fmt::format(" \\\n        '1:command:(({}))' '*: :_files'", names);
    } else if (c.place.kind != Kind::kNone) {
      words += fmt::format(" \\\n        '*{}'", zsh_value(c.place));
    }
    cases += fmt::format("    \"{}\")\n      _arguments{}\n      ;;\n", c.path, words);
  }
  return fmt::format(R"sh(#compdef gipo
# What zsh completes for gipo. Put `eval "$(gipo completion zsh)"` behind `compinit` in ~/.zshrc.
_gipo() {{
  local command="" word
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$command $word" in
      {}) command="${{command:+$command }}$word"; shift words; (( CURRENT-- )) ;;
    esac
  done
  case "$command" in
{}  esac
}}
compdef _gipo gipo
)sh",
                     patterns_of(commands), cases);
}

std::string fish_quoted(const std::string& text) { return "'" + replaced(text, {{'\'', "\\'"}, {'\\', "\\\\"}}) + "'"; }

std::string fish_value(const CompletedValue& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "";
    case Kind::kPath:
      return " -r -F";
    case Kind::kChoice:
      return fmt::format(" -x -a '{}'", fmt::join(value.choices, " "));
    case Kind::kText:
      break;
  }
  return " -x";
}

// Where the command was typed, and none below it.
std::string fish_condition(const Commands& commands, const std::string& path) {
  const auto inner = below(commands, path);
  if (path.empty()) return "__fish_use_subcommand";
  std::string condition = "__fish_seen_subcommand_from " + last_word(path);
  if (!inner.empty()) condition += "; and not __fish_seen_subcommand_from " + names_of(inner);
  return condition;
}

std::string fish_script(const Commands& commands) {
  std::string script =
      "# What fish completes for gipo. Put `gipo completion fish | source` into ~/.config/fish/config.fish.\n"
      "complete -c gipo -f\n";
  for (const CompletedCommand& c : commands) {
    const std::string start = fmt::format("complete -c gipo -n '{}'", fish_condition(commands, c.path));
    for (const CompletedCommand* i : below(commands, c.path)) {
      script += fmt::format("{} -a {} -d {}\n", start, last_word(i->path), fish_quoted(i->help));
    }
    for (const CompletedOption& o : c.options) {
      script += fmt::format("{} -l {}{} -d {}\n", start, o.name.substr(2), fish_value(o.value), fish_quoted(o.help));
    }
    if (c.place.kind == Kind::kPath) script += start + " -F\n";
    if (c.place.kind == Kind::kChoice) script += fmt::format("{} -a '{}'\n", start, fmt::join(c.place.choices, " "));
  }
  return script;
}

}  // namespace

std::string completion_script(const std::string& shell, const Commands& commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  GIPO_CHECK(shell == "fish");
  return fish_script(commands);
}

}  // namespace gipo::cli
