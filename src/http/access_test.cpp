#include "http/access.h"

#include <gtest/gtest.h>

#include "base/temp_directory.h"

namespace caravan::http {
namespace {

ServerOptions with_keys() {
  ServerOptions options;
  options.api_keys = {{"alice", "secret-a"}, {"bob", "secret-b"}};
  return options;
}

HttpRequest with_headers(Headers headers, bool loopback = false) {
  HttpRequest request;
  request.headers = std::move(headers);
  request.peer_loopback = loopback;
  return request;
}

TEST(Access, TheTenantIsTheNameOfTheKey) {
  const ServerOptions options = with_keys();
  EXPECT_EQ(admit(with_headers({{"Authorization", "Bearer secret-a"}}), Access::key, options), "alice");
  EXPECT_EQ(admit(with_headers({{"authorization", "bearer secret-b"}}), Access::key, options), "bob");
  EXPECT_EQ(admit(with_headers({{"x-api-key", "secret-b"}}), Access::key, options), "bob");
}

TEST(Access, NoKeyOrAWrongOneIs401) {
  const ServerOptions options = with_keys();
  for (const char* value : {"", "Bearer ", "Bearer secret-", "Bearer secret-aa", "Bearer alice", "Basic secret-a"}) {
    const auto refused = admit(with_headers({{"Authorization", value}}), Access::key, options);
    ASSERT_FALSE(refused) << value;
    EXPECT_EQ(refused.error().status, 401U);
    EXPECT_EQ(refused.error().message.find("secret"), std::string::npos);
  }
  EXPECT_TRUE(admit(with_headers({}), Access::open, options));
  EXPECT_TRUE(admit(with_headers({}), Access::key, {}));
}

TEST(Access, AdminAnswersToItsKeyOrToThisHostAlone) {
  EXPECT_TRUE(admit(with_headers({{"Host", "localhost:8080"}}, true), Access::admin, {}));
  EXPECT_FALSE(admit(with_headers({}, false), Access::admin, {}));
  EXPECT_FALSE(admit(with_headers({{"X-Forwarded-For", "10.0.0.1"}}, true), Access::admin, {}));
  EXPECT_FALSE(admit(with_headers({{"Host", "evil.example"}}, true), Access::admin, {}));
  EXPECT_FALSE(
      admit(with_headers({{"Host", "localhost:1"}, {"Origin", "https://evil.example"}}, true), Access::admin, {}));
  EXPECT_TRUE(
      admit(with_headers({{"Host", "localhost:1"}, {"Origin", "http://localhost:1"}}, true), Access::admin, {}));
  ServerOptions keyed = with_keys();
  keyed.admin_key = "root";
  EXPECT_TRUE(admit(with_headers({{"Authorization", "Bearer root"}}), Access::admin, keyed));
  EXPECT_FALSE(admit(with_headers({}, true), Access::admin, keyed));
  EXPECT_FALSE(admit(with_headers({{"Authorization", "Bearer secret-a"}}, true), Access::admin, keyed));
}

TEST(ApiKeyFile, IsNameColonKeyALine) {
  const TempDirectory folder;
  const auto keys = read_api_keys(folder.write("keys.txt", "# who\n\n alice : k1 \r\nbob:k:2\n"));
  ASSERT_TRUE(keys) << keys.error().message;
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ((*keys)[0].name, "alice");
  EXPECT_EQ((*keys)[0].secret, "k1");
  EXPECT_EQ((*keys)[1].secret, "k:2");
  for (const char* wrong : {"alice\n", "alice:\n", "al ice:k\n", "alice:k k\n", "", "#\n"}) {
    EXPECT_FALSE(read_api_keys(folder.write("keys.txt", wrong))) << wrong;
  }
  EXPECT_FALSE(read_api_keys("/nowhere/keys"));
}

TEST(ServerOptions, WrongOnesAreRefusedWithTheirValue) {
  EXPECT_TRUE(validate({}));
  ServerOptions same = with_keys();
  same.api_keys[1].secret = "secret-a";
  EXPECT_FALSE(validate(same));
  EXPECT_FALSE(validate({.admin_key = ""}));
  EXPECT_FALSE(validate({.cors_origin = "a b"}));
  EXPECT_FALSE(validate({.workers = 0}));
  EXPECT_FALSE(validate({.keep_alive_interval = Duration::zero()}));
  EXPECT_FALSE(validate({.host = ""}));
}

}  // namespace
}  // namespace caravan::http
