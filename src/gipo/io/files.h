#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gipo {

// The whole file. Throws Error naming the path and the reason; also where it holds more than `most` bytes.
std::string read_file(const std::string& path, std::uint64_t most = ~0ull);

// Writes path so that a reader, or the next start after a crash, finds either the old bytes or the new ones, never a
// mixture: a temporary file beside it, fsync, rename, fsync of the folder. One writer per path. Throws RunError.
void write_file_atomic(const std::string& path, std::string_view bytes);

// The steps of an atomic write apart, for folders: each is on disk when it returns. All throw RunError.
void write_file_synced(const std::string& path, std::string_view bytes);
void make_folder(const std::string& path);  // with its parents; one that exists is fine
void sync_folder(const std::string& path);
void sync_file(const std::string& path);                             // one that was written before
void rename_folder(const std::string& from, const std::string& to);  // and syncs the folder that holds it
void exchange_folders(const std::string& a, const std::string& b);   // at once: neither name is ever missing

// A file of which only a part is in memory at a time; on disk once finish() has returned. Throws RunError.
class SyncedFile {
 public:
  explicit SyncedFile(std::string path);
  ~SyncedFile();
  SyncedFile(const SyncedFile&) = delete;
  SyncedFile& operator=(const SyncedFile&) = delete;

  void write(std::string_view bytes);
  void finish();

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t written_ = 0, begun_ = 0;  // bytes; on their way to the disk
};

// Reads a file from its beginning, as much at a time as is wanted. Throws Error naming the path.
class FileReader {
 public:
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  std::size_t read_some(char* out, std::size_t size);  // 0: the end
  void read(char* out, std::size_t size);              // exactly so many
 private:
  std::string path_;
  int descriptor_ = -1;
};

// A lock on a file that ends with the process, however that ends; the file holds the number of the process. Throws
// Error when another process holds it.
class FileLock {
 public:
  FileLock(const std::string& path, const std::string& what);  // what: for the message, "run folder X"
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_;
};

// A file that only grows. Buffered; the destructor writes what is left but cannot report a failure, so call flush()
// before relying on the file. Owned and used by one thread. Every failure throws RunError.
class AppendFile {
 public:
  static constexpr std::uint64_t kKeepAll = ~0ull;

  // Opens or creates. A resumed run passes as `keep` the position its checkpoint saved: what was written after that is
  // cut off, and a file shorter than that is an error.
  explicit AppendFile(std::string path, std::uint64_t keep = kKeepAll);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view bytes);
  void flush();  // to the operating system: survives the end of this process
  void sync();   // to the disk: survives the end of the machine

  // Bytes in the file once flushed.
  std::uint64_t position() const { return written_ + buffer_.size(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t written_ = 0;
  std::string buffer_;
};

}  // namespace gipo
