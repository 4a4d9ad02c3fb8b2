// File: src/data/dataset_info.h
//
// PREFIX.json, which tokenize writes beside PREFIX.train.{bin,idx} and PREFIX.heldout.{bin,idx}: how the data
// set was made, its size, its hash and the bars that a model must pass. Data sets of other makers have none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace yardmaster {

struct DatasetPart {
  int64_t documents = 0, tokens = 0;  // tokens include the ends of documents
};

struct DatasetInfo {
  std::string tokenizer;        // "bytes"
  int64_t vocab_size = 0;       // 257
  int32_t end_of_document = 0;  // 256
  int64_t bytes = 0;            // of text
  std::string sha256;           // of the documents in order (tokenize.h)
  DatasetPart train, heldout;
  double bigram_nats = 0, trigram_nats = 0;  // held-out entropy per token (ngram.h)
  double bigram_k = 0, trigram_k = 0;        // their smoothing
};

std::string DatasetInfoToJson(const DatasetInfo& info);  // ends in a newline

// Throws DataError with the path and the key that is missing or of the wrong type.
DatasetInfo ReadDatasetInfo(const std::string& json_path);

// The description of the data set that `path` ("PREFIX", "PREFIX.train", "PREFIX.heldout.bin", ...) belongs
// to, or nothing where there is none.
std::optional<DatasetInfo> FindDatasetInfo(const std::string& path);

}  // namespace yardmaster
