// The examples of FIPS 180-4's companion document (NIST, SHA-256 examples) and the padding borders.
#include "host/sha256.h"

#include "tests/support.h"

namespace flashptx::test {

TEST_SUITE("host/sha256") {
  TEST_CASE("gives the published digests") {
    CHECK(to_hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(to_hex(sha256("abc")) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(to_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(to_hex(sha256(std::string(1000000, 'a'))) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }

  TEST_CASE("agrees with sha256sum around the padding borders") {
    if (shell("command -v sha256sum").exit_code != 0) FLASHPTX_SKIP("sha256sum is not installed");
    ScratchFolder folder;
    for (int n : {1, 54, 55, 56, 57, 63, 64, 65, 118, 119, 120, 127, 128, 129}) {
      std::string text;
      for (int i = 0; i < n; ++i) text += static_cast<char>('A' + (i * 7) % 57);
      write_file(folder.path("f"), text);
      CHECK(shell("sha256sum < " + folder.path("f")).output.substr(0, 64) == to_hex(sha256(text)));
    }
  }
}

}  // namespace flashptx::test
