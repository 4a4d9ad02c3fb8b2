// File: src/data/tokenize.h
//
// Makes a data set of byte tokens (byte_tokenizer.h) from files: one document a file, closed by an end of
// document. The result is a pure function of the files' contents and of the order of their paths.
//
//   order      by path, bytewise
//   dropped    empty files, exact duplicates (SHA-256) of an earlier file, and what cannot be read; each
//   counted held out   a document whose SHA-256, as a number in [0, 1), is below heldout_fraction: a document
//   keeps its
//              side whatever comes or goes beside it. Where that leaves a side empty, the document nearest to
//              it moves there.
//   sha256     the data set's hash: SHA-256 over one line "train SHA256\n" or "heldout SHA256\n" a document,
//              in order, so that it says nothing of where the files lay
//
// Writes PREFIX.train.{bin,idx}, PREFIX.heldout.{bin,idx} (u16) and PREFIX.json (dataset_info.h). Each file
// is written under a temporary name, synced and renamed. A data set of that name, or a part of one, is refused
// unless it may be replaced: its PREFIX.json goes first and the new one comes last, so PREFIX.json means
// complete. A process that has the old files open keeps reading them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset_info.h"

namespace yardmaster {

struct TokenizeOptions {
  std::vector<std::string> paths;  // files, or directories: all below them, but for links to directories
  std::string file_list;           // a file with one path a line, relative to the working directory; "": none
  std::string out_prefix;
  double heldout_fraction = 0.02;  // of the documents; above 0 and below 1
  bool replace = false;            // what is there already
};

struct TokenizeResult {
  std::string prefix;
  DatasetInfo info;
  int64_t files = 0;  // looked at; = documents + duplicates + empty + unreadable
  int64_t duplicates = 0, empty = 0;
  std::vector<std::string> unreadable;  // "path: reason", in order
};

// Throws ConfigError for impossible options and for outputs that are there and may not be replaced, DataError
// for a path in `paths` that does not exist or when fewer than two different documents remain, Error when the
// output cannot be written.
TokenizeResult Tokenize(const TokenizeOptions& options);

// What happened, for a person: several lines, each with a newline.
std::string TokenizeReport(const TokenizeResult& result);

}  // namespace yardmaster
