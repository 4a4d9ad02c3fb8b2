#include "src/tensor/safetensors.h"

#include <cstring>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/hash.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "tests/base/temp_dir.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

using testing::TempDir;

std::string File(const std::string& header, const std::string& data, int64_t length = -1) {
  const uint64_t n = length >= 0 ? static_cast<uint64_t>(length) : header.size();
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(n >> 8 * i);
  return out + header + data;
}

void Save(const std::string& path, const std::string& bytes) {
  FileWriter writer(path);
  writer.Write(bytes);
  writer.Close(false);
}

// The message with which the reader refuses these bytes; "" if it takes them.
std::string Refusal(const std::string& bytes) {
  const TempDir dir;
  Save(dir / "f.safetensors", bytes);
  try {
    SafetensorsFile file(dir / "f.safetensors", ExitCode::kData);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kData);
    CHECK(std::string(error.what()).find("f.safetensors") != std::string::npos);
    return error.what();
  }
  return "";
}

const std::string kHeader = R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";

TEST_CASE("the format's own example is read") {
  REQUIRE(kHeader.size() == 60);
  const TempDir dir;
  Save(dir / "f", File(kHeader, std::string("\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0", 16)));
  const SafetensorsFile file(dir / "f");
  CHECK(file.names() == std::vector<std::string>{"test"});
  const Tensor t = file.Get("test");  // 68 bytes in: a multiple of 4
  CHECK(t.shape() == Shape{2, 2});
  CHECK(t.as<int32_t>()[3] == 4);
  CHECK(file.Describe("test").offset == 68);
}

TEST_CASE("what is written is read back, in the usual order, with its crc") {
  const TempDir dir;
  HostTensor f64(DType::kF64, {3}), bf16(DType::kBF16, {2, 2}), u8(DType::kU8, {3}),
      scalar(DType::kI64, Shape()), empty(DType::kF32, {0, 4});
  f64.as<double>()[2] = 0.1;
  bf16.as<BFloat16>()[1] = BFloat16(1.5f);
  u8.as<uint8_t>()[0] = 200;
  scalar.as<int64_t>()[0] = -5;
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"with \"quotes\"\n", "\xc3\xa9"}};
  const SafetensorsWritten written = WriteSafetensors(
      dir / "f",
      {{"u", u8.view()}, {"b", bf16.view()}, {"z", f64.view()}, {"s", scalar.view()}, {"e", empty.view()}},
      metadata, true);
  const std::string bytes = ReadFile(dir / "f");
  CHECK(written.file_bytes == bytes.size());
  CHECK(written.crc32c == Crc32c(bytes.data(), bytes.size()));
  CHECK(written.offsets.at("s") % 8 == 0);
  CHECK(written.offsets.at("s") < written.offsets.at("z"));
  CHECK(written.offsets.at("z") < written.offsets.at("e"));
  CHECK(written.offsets.at("e") <= written.offsets.at("b"));
  CHECK(written.offsets.at("b") < written.offsets.at("u"));
  CHECK(written.chunk_crc32c.at("u") == std::vector<uint32_t>{Crc32c(u8.view().data(), 3)});
  CHECK(written.chunk_crc32c.at("e").empty());

  const SafetensorsFile file(dir / "f");
  CHECK(file.metadata() == metadata);
  CHECK(file.names() == std::vector<std::string>{"b", "e", "s", "u", "z"});
  CHECK(file.Get("z").as<double>()[2] == 0.1);
  CHECK(static_cast<float>(file.Get("b").as<BFloat16>()[1]) == 1.5f);
  CHECK(file.Get("u").as<uint8_t>()[0] == 200);
  CHECK(file.Get("s").shape().rank() == 0);
  CHECK(file.Get("s").as<int64_t>()[0] == -5);
  CHECK(file.Get("e").shape() == Shape{0, 4});
}

TEST_CASE("streamed data gives the same file, with a crc for each piece") {
  const TempDir dir;
  HostTensor t(DType::kI32, {25});
  for (int i = 0; i < 25; ++i) t.as<int32_t>()[i] = i * i;
  const char* data = static_cast<const char*>(t.view().data());
  std::vector<uint64_t> sizes;
  const SafetensorsSource source{"t", DType::kI32, Shape{25}, [&](uint64_t begin, uint64_t n, void* out) {
                                   sizes.push_back(n);
                                   std::memcpy(out, data + begin, n);
                                 }};
  const SafetensorsWritten written = WriteSafetensorsFrom(dir / "streamed", {source}, {}, false, 32);
  CHECK(sizes == std::vector<uint64_t>{32, 32, 32, 4});
  REQUIRE(written.chunk_crc32c.at("t").size() == 4);
  CHECK(written.chunk_crc32c.at("t")[3] == Crc32c(data + 96, 4));
  WriteSafetensors(dir / "whole", {{"t", t.view()}}, {}, false);
  CHECK(ReadFile(dir / "streamed") == ReadFile(dir / "whole"));
}

TEST_CASE("the writer refuses two tensors of one name and text that is not UTF-8") {
  const TempDir dir;
  const HostTensor t(DType::kU8, {1});
  CHECK_THROWS_AS(WriteSafetensors(dir / "f", {{"a", t.view()}, {"a", t.view()}}, {}, false), Error);
  CHECK_THROWS_AS(WriteSafetensors(dir / "f", {{"\xff", t.view()}}, {}, false), Error);
}

TEST_CASE("dtypes without a DType are named, described, and their bytes given") {
  const TempDir dir;
  Save(dir / "f", File(R"({"q.weight":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
                       R"("h":{"dtype":"F16","shape":[1],"data_offsets":[3,5]}})",
                       "abcde"));
  const SafetensorsFile file(dir / "f");
  CHECK(file.Describe("q.weight").dtype == "F8_E4M3");
  CHECK(file.Describe("q.weight").shape == std::vector<int64_t>{3});
  CHECK(static_cast<char>(file.Bytes("h")[1]) == 'e');
  for (const char* name : {"q.weight", "h"}) {
    try {
      file.Get(name);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find(name) != std::string::npos);
      CHECK(error.code() == ExitCode::kCheckpoint);
    }
  }
  try {
    file.Get("q.weigth");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("there is 'q.weight'") != std::string::npos);
  }
}

TEST_CASE("data that is not aligned is still read") {
  const TempDir dir;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"I32","shape":[1],"data_offsets":[1,5]}})";
  Save(dir / "f", File(header, std::string("x\x05\0\0\0", 5)));
  SafetensorsFile file(dir / "f");
  const Tensor b = file.Get("b");
  const SafetensorsFile moved = std::move(file);
  CHECK(reinterpret_cast<uintptr_t>(b.data()) % 4 == 0);
  CHECK(b.as<int32_t>()[0] == 5);
  CHECK(moved.Get("b").as<int32_t>()[0] == 5);
}

TEST_CASE("files that break a rule are refused with the reason") {
  const std::string data(16, 'd');
  CHECK(Refusal(File(kHeader, data)).empty());
  CHECK(Refusal(File(kHeader + "   ", data)).empty());
  CHECK(Refusal(File("{}", "")).empty());
  CHECK(Refusal(File(R"({"__metadata__":{"a":"b"}})", "")).empty());
  const auto refused = [](const std::string& bytes, const std::string& reason) {
    const std::string text = Refusal(bytes);
    INFO(text << " should have: " << reason);
    CHECK(text.find(reason) != std::string::npos);
  };
  refused("", "0 bytes");
  refused(std::string("\1\0\0\0\0\0\0", 7), "7 bytes");
  refused(File(kHeader, data, 100'000'001), "over 100 MB");
  refused(File(kHeader, data, 99'000'000), "99000000 bytes long");
  refused(File(kHeader, data).substr(0, 40), "60 bytes long");
  refused(File("", "", 0), "begin with {");
  refused(File(" " + kHeader, data), "begin with {");
  refused(File("[]", ""), "begin with {");
  refused(File(kHeader + "x", data), "JSON");
  refused(File(kHeader + kHeader, data), "JSON");
  refused(File(kHeader.substr(0, 59), data), "JSON");
  refused(File(kHeader, data + "y"), "end at byte 16 of the data, the file has 17");
  refused(File(kHeader, data.substr(1)), "the file has 15");
  const auto entry = [&](const std::string& text) { return File("{\"t\":" + text + "}", data); };
  refused(entry(R"({"dtype":"I32","shape":[2,2]})"), "lacks data_offsets");
  refused(entry(R"({"shape":[4],"data_offsets":[0,16]})"), "lacks dtype");
  refused(entry(R"({"dtype":"I32","data_offsets":[0,16]})"), "lacks shape");
  refused(entry("{}"), "lacks");
  refused(entry(R"({"dtype":"i32","shape":[4],"data_offsets":[0,16]})"), "unknown dtype 'i32'");
  refused(entry(R"({"dtype":"I32","shape":[5],"data_offsets":[0,16]})"), "need 20");
  refused(entry(R"({"dtype":"F4","shape":[33],"data_offsets":[0,16]})"), "whole byte");
  refused(entry(R"({"dtype":"I32","shape":[-4],"data_offsets":[0,16]})"), "negative");
  refused(entry(R"({"dtype":"I32","shape":[4.0],"data_offsets":[0,16]})"), "not a whole number");
  refused(entry(R"({"dtype":"I32","shape":[4],"data_offsets":[0,99999999999999999999]})"),
          "not a whole number");
  refused(entry(R"({"dtype":"I32","shape":[4],"data_offsets":[0,18446744073709551615]})"), "need 16");
  refused(entry(R"({"dtype":"I32","shape":[9223372036854775807,4],"data_offsets":[0,16]})"), "2^63");
  refused(entry(R"({"dtype":"I32","shape":[4294967296,4294967296,4294967296,0],"data_offsets":[0,0]})"),
          "2^63");
  refused(entry(R"({"dtype":"I32","shape":[4],"data_offsets":[16,0]})"), "before it begins");
  refused(entry(R"({"dtype":"I32","shape":[4],"data_offsets":[0]})"), "1 data_offsets");
  refused(entry(R"({"dtype":"I32","shape":[4],"data_offsets":[1,17]})"), "ends at byte 17");
  refused(entry(R"({"dtype":"I32","shape":[3],"data_offsets":[4,16]})"), "begins at byte 4");
  refused(entry(R"({"dtype":"I32","shape":[4],"data_offsets":[0,16],"extra":1})"), "unknown field 'extra'");
  refused(entry(R"({"dtype":"I32","dtype":"I32","shape":[4],"data_offsets":[0,16]})"), "'dtype' twice");
  refused(entry(R"({"dtype":"I32","shape":[[4]],"data_offsets":[0,16]})"), "an array where none belongs");
  refused(entry(R"({"dtype":{"a":1},"shape":[4],"data_offsets":[0,16]})"), "an object where none belongs");
  refused(entry(R"({"dtype":null,"shape":[4],"data_offsets":[0,16]})"), "null");
  refused(entry("16"), "a number where none belongs");
  refused(entry(std::string(200000, '[')), "an array where none belongs");
  const std::string four = R"({"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
  const std::string next = R"({"dtype":"U8","shape":[8],"data_offsets":[8,16]})";
  const std::string over = R"({"dtype":"U8","shape":[9],"data_offsets":[7,16]})";
  CHECK(Refusal(File("{\"a\":" + next + ",\"b\":" + four + "}", data)).empty());
  refused(File("{\"a\":" + four + ",\"a\":" + next + "}", data), "'a' is there twice");
  refused(File("{\"a\":" + four + ",\"b\":" + over + "}", data), "begins at byte 7");
  refused(File(R"({"__metadata__":{"a":1}})", ""), "a number");
  refused(File(R"({"__metadata__":"a"})", ""), "a string");
  refused(File(R"({"__metadata__":{"a":"b","a":"c"}})", ""), "metadata 'a' is there twice");
  refused(File(R"({"__metadata__":{},"__metadata__":{}})", ""), "twice");
}

// A mutated file is refused with an Error, or it is a valid file, whose every tensor lies within the file.
TEST_CASE("two hundred mutated files: refused or valid, never a crash") {
  const TempDir dir;
  HostTensor a(DType::kF32, {7, 3}), b(DType::kBF16, {5}), c(DType::kI64, {2, 2});
  WriteSafetensors(dir / "good", {{"layer.a", a.view()}, {"layer.b", b.view()}, {"c", c.view()}},
                   {{"k", "v"}}, false);
  const std::string good = ReadFile(dir / "good");
  uint64_t drawn = 0;
  const auto draw = [&](uint64_t below) { return Philox4x32(2024, 11, drawn++)[0] % below; };
  const std::string digits = "0123456789{}[]\":,.-eE \\";
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string bytes = good;
    const uint64_t header_end =
        8 + static_cast<unsigned char>(good[0]) + 256u * static_cast<unsigned char>(good[1]);
    switch (i % 5) {
      case 0:
        bytes.resize(draw(bytes.size()));
        break;  // cut
      case 1:
        bytes[draw(header_end)] = static_cast<char>(draw(256));
        break;  // any byte
      case 2:
        bytes[8 + draw(header_end - 8)] = digits[draw(digits.size())];
        break;  // a JSON character
      case 3:
        bytes.insert(8 + draw(header_end - 8), 1 + draw(3), digits[draw(digits.size())]);
        break;
      case 4:
        bytes.erase(8 + draw(bytes.size() - 8), 1 + draw(8));
        break;
    }
    Save(dir / "bad", bytes);
    try {
      const SafetensorsFile file(dir / "bad");
      uint64_t total = 0;
      for (const std::string& name : file.names()) {
        const auto& entry = file.Describe(name);
        REQUIRE(entry.offset + entry.bytes <= bytes.size());
        total += entry.bytes;
        volatile unsigned char sum = 0;
        for (uint64_t k = 0; k < entry.bytes; ++k)
          sum = sum + static_cast<unsigned char>(file.Bytes(name)[k]);
        try {
          CHECK(static_cast<uint64_t>(file.Get(name).bytes()) == entry.bytes);
        } catch (const Error&) {  // a dtype that is of the format but not ours
        }
      }
      const uint64_t n = static_cast<unsigned char>(bytes[0]) + 256u * static_cast<unsigned char>(bytes[1]);
      CHECK(8 + n + total == bytes.size());
    } catch (const Error& error) {
      ++refused;
      CHECK(std::string(error.what()).find("bad") != std::string::npos);
    }
  }
  CHECK(refused > 150);  // the rest changed names, metadata or spaces
  CHECK(refused < 200);
}

}  // namespace
}  // namespace yardmaster
