// File: src/metrics/metrics_file.h
//
// run.dir/metrics.jsonl: one object per training step (none missing, none twice) and one per evaluation
// (`val_loss`, no `loss`). Appended and flushed line by line; on resume it is cut back to the resumed step,
// so that a step appears once.
#pragma once

#include <cstdint>
#include <string>

namespace yardmaster {

class MetricsFile {
 public:
  // Keeps the lines with step <= last_step (0: none) of an existing file; a torn last line is dropped, as a
  // process that was killed leaves it. Other lines that are no records are dropped too, and told: damage().
  MetricsFile(const std::string& path, int64_t last_step);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();
  void Append(const std::string& line);  // ends with a newline; throws Error(kDiskFull) or Error(kData) if it
                                         // cannot be written
  int64_t last_evaluation() const { return last_evaluation_; }  // step of the last evaluation kept at start; -1: none
  const std::string& path() const { return path_; }
  // What was wrong with the existing file, a sentence for a warning; "": nothing.
  const std::string& damage() const { return damage_; }

 private:
  std::string path_, damage_;
  int64_t last_evaluation_ = -1;
  int fd_ = -1;
};

}  // namespace yardmaster
