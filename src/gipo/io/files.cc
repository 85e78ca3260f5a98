#include "gipo/io/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {
namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;
constexpr std::uint64_t kWriteBackBytes = 8 * 1024 * 1024;

// A test hook: milliseconds to sleep before each step of a durable write, so that a kill falls between two of them.
void pause_for_test() {
  static const char* const given = std::getenv("GIPO_TEST_SLOW_DISK_MS");
  if (!given) return;
  if (const int ms = std::atoi(given); ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(const char* what, const std::string& path, int error) {
  throw RunError(std::string(what) + " " + path + ": " + reason(error));
}

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// The error number of the write that failed, or 0; `written` counts what reached the file even then.
int write_all(int fd, std::string_view bytes, std::uint64_t& written) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(n));
    written += static_cast<std::uint64_t>(n);
  }
  return 0;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

FileReader::FileReader(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw Error("cannot read " + path_ + ": " + reason(errno));
}

FileReader::~FileReader() { ::close(descriptor_); }

std::size_t FileReader::read_some(char* out, std::size_t size) {
  while (true) {
    const ssize_t n = ::read(descriptor_, out, size);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) throw Error("cannot read " + path_ + ": " + reason(errno));
  }
}

void FileReader::read(char* out, std::size_t size) {
  while (size > 0) {
    const std::size_t n = read_some(out, size);
    if (n == 0) throw Error("cannot read " + path_ + ": it ends early");
    out += n;
    size -= n;
  }
}

std::string read_file(const std::string& path, std::uint64_t most) {
  FileReader file(path);
  // The size is only a hint: pipes and /proc report none, and a file may grow while it is read.
  std::string bytes;
  std::error_code unknown;
  const std::uint64_t size = std::filesystem::file_size(path, unknown);
  if (!unknown) bytes.reserve(std::min(size, most));
  std::array<char, kBufferBytes> block;
  while (const std::size_t n = file.read_some(block.data(), block.size())) {
    bytes.append(block.data(), n);
    if (bytes.size() > most)
      throw Error("cannot read " + path + ": it holds more than " + std::to_string(most) + " bytes");
  }
  return bytes;
}

SyncedFile::SyncedFile(std::string path) : path_(std::move(path)) {
  pause_for_test();
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot create", path_, errno);
}

SyncedFile::~SyncedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SyncedFile::write(std::string_view bytes) {
  if (const int error = write_all(descriptor_, bytes, written_); error != 0) fail("cannot write", path_, error);
  if (written_ - begun_ < kWriteBackBytes) return;
  // Begun early, so that little waits in memory, which a control group counts, and the sync at the end is short.
  ::sync_file_range(descriptor_, static_cast<off_t>(begun_), static_cast<off_t>(written_ - begun_),
                    SYNC_FILE_RANGE_WRITE);
  begun_ = written_;
}

void SyncedFile::finish() {
  if (::fsync(descriptor_) != 0) fail("cannot write to disk", path_, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot write", path_, errno);
}

void write_file_synced(const std::string& path, std::string_view bytes) {
  SyncedFile file(path);
  file.write(bytes);
  file.finish();
}

// A rename is only on disk once its folder is. Some file systems refuse fsync on a folder; they order renames anyway.
void sync_folder(const std::string& path) {
  pause_for_test();
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) fail("cannot open folder", path, errno);
  if (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP) fail("cannot write to disk", path, errno);
}

void sync_file(const std::string& path) {
  pause_for_test();
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail("cannot open", path, errno);
  if (::fsync(file.get()) != 0) fail("cannot write to disk", path, errno);
}

void make_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) fail("cannot create folder", path, failed.value());
}

void rename_folder(const std::string& from, const std::string& to) {
  pause_for_test();
  if (std::rename(from.c_str(), to.c_str()) != 0) fail("cannot rename to", to, errno);
  sync_folder(folder_of(to));
}

void exchange_folders(const std::string& a, const std::string& b) {
  pause_for_test();
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) fail("cannot replace", b, errno);
  sync_folder(folder_of(b));
}

FileLock::FileLock(const std::string& path, const std::string& what)
    : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) throw Error("cannot open " + path + ": " + reason(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
    const std::string holder = std::to_string(::getpid()) + "\n";
    const bool told = ::ftruncate(descriptor_, 0) == 0 && ::write(descriptor_, holder.data(), holder.size()) > 0;
    (void)told;  // a full disk costs the next one a detail of its message, no more
    return;
  }
  const int error = errno;
  char text[16] = {};
  const auto length = ::read(descriptor_, text, sizeof text - 1);
  ::close(descriptor_);
  if (error == EWOULDBLOCK) {
    const long holder = length > 0 ? std::strtol(text, nullptr, 10) : 0;
    throw Error(what + " is in use by another process" + (holder > 0 ? " (" + std::to_string(holder) + ")" : ""));
  }
  throw Error("cannot lock " + path + ": " + reason(error));
}

FileLock::~FileLock() { ::close(descriptor_); }

void write_file_atomic(const std::string& path, std::string_view bytes) {
  // A fixed name, so that a crash leaves at most one stray file, which the next write replaces.
  const std::string temporary = path + ".tmp";
  try {
    write_file_synced(temporary, bytes);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot replace", path, errno);
  } catch (const RunError&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(path));
}

AppendFile::AppendFile(std::string path, std::uint64_t keep) : path_(std::move(path)) {
  Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.get() < 0) fail("cannot open", path_, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail("cannot open", path_, errno);
  written_ = static_cast<std::uint64_t>(info.st_size);

  if (keep != kKeepAll) {
    if (written_ < keep) {
      throw RunError(path_ + " is shorter than when it was saved: " + std::to_string(written_) + " of " +
                     std::to_string(keep) + " bytes");
    }
    if (::ftruncate(file.get(), static_cast<off_t>(keep)) != 0) fail("cannot cut", path_, errno);
    written_ = keep;
  }
  buffer_.reserve(2 * kBufferBytes);
  descriptor_ = file.release();
}

AppendFile::~AppendFile() {
  write_all(descriptor_, buffer_, written_);
  ::close(descriptor_);
}

void AppendFile::append(std::string_view bytes) {
  // Taken first: where the write fails, nothing is lost, and a later flush may succeed.
  buffer_.append(bytes);
  if (buffer_.size() > kBufferBytes) flush();
}

void AppendFile::flush() {
  const std::uint64_t before = written_;
  const int error = write_all(descriptor_, buffer_, written_);
  // What a failed write left over stays buffered: once there is room again, a second flush goes on where it stopped.
  buffer_.erase(0, static_cast<std::size_t>(written_ - before));
  if (error != 0) fail("cannot write", path_, error);
}

void AppendFile::sync() {
  flush();
  if (::fsync(descriptor_) != 0) fail("cannot write to disk", path_, errno);
}

}  // namespace gipo
