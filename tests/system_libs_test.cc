// The libraries that @system offers compile, link and answer.
#include <cblas.h>
#include <spdlog/spdlog.h>
#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.h"
#include "tools/bazel/version_info.h"

TEST_CASE("yaml-cpp reads a value and its position") {
  const YAML::Node node = YAML::Load("a:\n  b: 3\n");
  CHECK(node["a"]["b"].as<int>() == 3);
  CHECK(node["a"]["b"].Mark().line == 1);
}

TEST_CASE("OpenBLAS multiplies") {
  const double a[] = {1, 2, 3, 4};
  const double b[] = {5, 6, 7, 8};
  double c[4] = {};
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 2, 2, 2, 1.0, a, 2, b, 2, 0.0, c, 2);
  CHECK(c[0] == 19);
  CHECK(c[3] == 50);
}

TEST_CASE("fmt, JSON and CLI11 are usable") {
  CHECK(fmt::format("{:>4}", 7) == "   7");
  CHECK(nlohmann::json::parse("{\"x\": 1}")["x"] == 1);
  CLI::App app;
  int n = 0;
  app.add_option("-n", n);
  const char* const argv[] = {"program", "-n", "5"};
  app.parse(3, argv);
  CHECK(n == 5);
}

TEST_CASE("the version is there and tests are not stamped") {
  CHECK_FALSE(std::string(YardmasterVersion()).empty());
  CHECK(std::string(YardmasterCommit()) == "unstamped");
  CHECK_FALSE(std::string(YardmasterCudaStatus()).empty());
}
