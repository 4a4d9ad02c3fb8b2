// File: src/data/byte_tokenizer.h
//
// The tokenizer "bytes": tokens 0 to 255 are the byte values, 256 ends a document. No vocabulary file, no
// unknown text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/check.h"

namespace yardmaster {

inline constexpr const char* kByteTokenizerName = "bytes";
inline constexpr int32_t kByteEndOfDocument = 256;
inline constexpr int64_t kByteVocabSize = 257;

// Without an end of document.
inline std::vector<int32_t> EncodeBytes(std::string_view text) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() + 1);
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

// Each end of document becomes `end_text`. The bytes need not be valid UTF-8.
inline std::string DecodeBytes(const int32_t* tokens, int64_t count, std::string_view end_text = "") {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    YM_CHECK(tokens[i] >= 0 && tokens[i] < kByteVocabSize, "token ", tokens[i], " of the byte tokenizer");
    if (tokens[i] == kByteEndOfDocument) {
      text += end_text;
    } else {
      text += static_cast<char>(tokens[i]);
    }
  }
  return text;
}

}  // namespace yardmaster
