// File: src/base/log.h
//
// The console. Only rank 0 prints Info; warnings and errors carry the rank. Thread-safe (spdlog behind one file).
// Log lines are for people: they go to stdout (info) and stderr (warnings, errors), without timestamps unless asked.
#pragma once

#include <string>

namespace yardmaster {

struct LogOptions {
  int rank = 0;
  bool color = false;  // the caller decides (auto: never under mpirun or when piped)
};

void InitLog(const LogOptions& options);
bool LogColor();
void LogInfo(const std::string& line);   // rank 0 only
void LogWarning(const std::string& line);
void LogError(const std::string& line);
void FlushLog();

}  // namespace yardmaster
