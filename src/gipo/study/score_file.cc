#include "gipo/study/score_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gipo/config/did_you_mean.h"
#include "gipo/config/path_text.h"
#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/io/json_text.h"
#include "gipo/io/number_text.h"

namespace gipo {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostMethodsOrTasks = 1000;
constexpr std::size_t kMostBytes = 64 * 1024 * 1024, kMostDepth = 8;  // millions of scores; they stand four deep
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";           // some spreadsheets begin a CSV with it

// The place of a name, added where it is new.
std::size_t index_of(std::vector<std::string>& names, const std::string& name, const std::string& where) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end() && names.size() == kMostMethodsOrTasks) {
    throw Error(fmt::format("{}: more than {} methods or tasks", where, kMostMethodsOrTasks));
  }
  const auto index = static_cast<std::size_t>(it - names.begin());
  if (it == names.end()) names.push_back(name);
  return index;
}

void add(ScoreTable& table, const std::string& method, const std::string& task, double score,
         const std::string& where) {
  if (!std::isfinite(score)) throw Error(fmt::format("{}: a score is not finite", where));
  const std::size_t m = index_of(table.methods, method, where), t = index_of(table.tasks, task, where);
  table.scores.resize(table.methods.size());
  if (table.scores[m].size() <= t) table.scores[m].resize(t + 1);
  table.scores[m][t].push_back(score);
}

// Every method needs a run of every task: an average over other tasks would be no comparison.
void check_whole(ScoreTable& table, const std::string& name) {
  if (table.methods.empty()) throw Error(fmt::format("{}: no scores there", name));
  for (std::size_t m = 0; m < table.methods.size(); ++m) {
    table.scores[m].resize(table.tasks.size());
    for (std::size_t t = 0; t < table.tasks.size(); ++t) {
      if (!table.scores[m][t].empty()) continue;
      throw Error(fmt::format("{}: method {} has no score for task {}: every method needs every task", name,
                              table.methods[m], table.tasks[t]));
    }
  }
}

double number_in(const Json& value, const std::string& where) {
  if (!value.is_number()) throw Error(fmt::format("{}: wanted a number", where));
  return value.get<double>();
}

const Json& object_of(const Json& value, const std::string& where) {
  if (!value.is_object()) throw Error(fmt::format("{}: wanted an object", where));
  return value;
}

void read_scales(const Json& scales, ScoreFile& file, const std::string& name) {
  file.scales.resize(file.table.tasks.size());
  for (std::size_t t = 0; t < file.table.tasks.size(); ++t) {
    const std::string& task = file.table.tasks[t];
    const std::string where = fmt::format("{}: scales: {}", name, task);
    if (!scales.contains(task))
      throw Error(where + ": missing; every task needs {\"random\": ..., \"reference\": ...}");
    const Json& scale = object_of(scales[task], where);
    if (!scale.contains("random") || !scale.contains("reference")) throw Error(where + ": wanted random and reference");
    file.scales[t] = {number_in(scale["random"], where), number_in(scale["reference"], where)};
  }
  for (const auto& [task, value] : scales.items()) {
    const auto& known = file.table.tasks;
    if (std::find(known.begin(), known.end(), task) != known.end()) continue;
    throw Error(fmt::format("{}: scales: no scores for task {}{}", name, task, did_you_mean(task, known)));
  }
}

ScoreFile read_json(std::string_view text, const std::string& name) {
  const Json json = parse_json<Json>(text, name, {kMostBytes, kMostDepth});
  object_of(json, name);
  for (const auto& [key, value] : json.items()) {
    if (key == "scores" || key == "scales") continue;
    throw Error(
        fmt::format("{}: unknown key {}{}; known: scores, scales", name, key, did_you_mean(key, {"scores", "scales"})));
  }
  if (!json.contains("scores")) throw Error(fmt::format("{}: wanted an object under \"scores\"", name));
  ScoreFile file;
  for (const auto& [method, tasks] : object_of(json["scores"], name + ": scores").items()) {
    for (const auto& [task, runs] : object_of(tasks, fmt::format("{}: scores: {}", name, method)).items()) {
      const std::string where = fmt::format("{}: scores: {}: {}", name, method, task);
      if (!runs.is_array()) throw Error(where + ": wanted a list of numbers, one per run");
      for (const Json& score : runs) add(file.table, method, task, number_in(score, where), where);
    }
  }
  check_whole(file.table, name);
  if (json.contains("scales")) read_scales(object_of(json["scales"], name + ": scales"), file, name);
  return file;
}

std::vector<std::string> cells(std::string_view line) {
  std::vector<std::string> all(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      all.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      all.emplace_back();
    } else if (c != '\r') {
      all.back() += c;
    }
  }
  return all;
}

double score_of(const std::string& text, const std::string& where) {
  const std::optional<double> value = decimal_number(text);
  if (!value) throw Error(fmt::format("{}: score = {}: wanted a number", where, shown_text(text)));
  if (!std::isfinite(*value)) throw Error(fmt::format("{}: score = {}: a score is not finite", where, text));
  return *value;
}

ScoreFile read_csv(std::string_view text, const std::string& name) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  ScoreFile file;
  std::vector<std::size_t> columns;  // of method, task, score
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string> row = cells(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string where = fmt::format("{}:{}", name, ++line_number);
    if (row.size() == 1 && row[0].empty()) continue;
    if (columns.empty()) {
      for (const char* wanted : {"method", "task", "score"}) {
        const auto it = std::find(row.begin(), row.end(), wanted);
        if (it == row.end()) throw Error(fmt::format("{}: no column {}; wanted method, task and score", where, wanted));
        columns.push_back(static_cast<std::size_t>(it - row.begin()));
      }
      continue;
    }
    if (row.size() <= *std::max_element(columns.begin(), columns.end())) {
      throw Error(fmt::format("{}: {} cells are too few", where, row.size()));
    }
    add(file.table, row[columns[0]], row[columns[1]], score_of(row[columns[2]], where), where);
  }
  check_whole(file.table, name);
  return file;
}

}  // namespace

ScoreFile load_scores(const std::string& path) { return parse_scores(read_file(path, kMostBytes), path); }

ScoreFile parse_scores(std::string_view text, const std::string& name) {
  return name.ends_with(".csv") ? read_csv(text, name) : read_json(text, name);
}

}  // namespace gipo
