// The readers behind host/driver/assemble.h on text and on real machine code.
#include "host/driver/assemble.h"

#include "tests/host/fake_driver.h"
#include "tests/support.h"

namespace flashptx::test {

TEST_SUITE("host/driver/assemble") {
  TEST_CASE("reads .version behind comments") {
    CHECK(ptx_version(".version 8.0\n.target sm_90a") == "8.0");
    CHECK(ptx_version("// .version 9.9\n\n/* .version\n 7.0 */\t.version\t8.3 // x") == "8.3");
    CHECK(ptx_version(".target sm_90a\n.version 8.0").empty());
    CHECK(ptx_version("// only a comment").empty());
    CHECK(ptx_version("/* open").empty());
    CHECK(ptx_version("").empty());
  }

  TEST_CASE("knows which driver reads which PTX") {
    CHECK(newest_ptx_of_driver(12000) == 80);
    CHECK(newest_ptx_of_driver(12060) == 85);
    CHECK(newest_ptx_of_driver(13000) == 90);
    CHECK(newest_ptx_of_driver(13010) == 0);
    CHECK(driver_for_ptx(80) == "525 (CUDA 12.0)");
    CHECK(driver_for_ptx(90) == "580 (CUDA 13.0)");
    CHECK(driver_for_ptx(99).empty());
  }

  TEST_CASE("explains a log by its first line and the text's own") {
    const char* text = "one\n   two;\nthree";
    CHECK(
        explain_log(
            "ptxas application ptx input, line 2; fatal   : Parsing error near ';': syntax error\n",
            text) == "line 2: fatal : Parsing error near ';': syntax error | two;");
    CHECK(explain_log("ptxas x, line 99; error : gone", text) == "line 99: error : gone");
    CHECK(explain_log("ptxas fatal : no line\nmore", text) == "ptxas fatal : no line");
    CHECK(explain_log("", text).empty());
  }

  TEST_CASE("counts setmaxnreg in text and USETMAXREG in machine code alike") {
    CHECK(count_setmaxnreg("setmaxnreg.dec.sync.aligned.u32 24; // setmaxnreg.inc\n"
                           "@p setmaxnreg.inc.sync.aligned.u32 240;\n// setmaxnreg.inc") == 2);
    CHECK(count_usetmaxreg(fake_cubin(3)) == 3);
    CHECK(count_usetmaxreg("no ELF") == -1);
    CHECK(count_usetmaxreg(fake_cubin(3).substr(0, 80)) == 0);  // cut short: reads nothing outside
    if (ptxas().empty()) FLASHPTX_SKIP("no ptxas: the machine code check ran on made-up code only");
    ScratchFolder folder;
    const std::string source =
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.reqntid "
        "384\n.minnctapersm 1\n{\n"
        ".reg .pred %p;\n.reg .b32 %t;\nmov.u32 %t, %tid.x;\nsetp.lt.u32 %p, %t, 128;\n@!%p bra "
        "$CONSUMER;\n"
        "setmaxnreg.dec.sync.aligned.u32 24;\nret;\n$CONSUMER:\nsetmaxnreg.inc.sync.aligned.u32 "
        "240;\nret;\n}\n";
    write_file(folder.path("k.ptx"), source);
    const auto assembled = [&](const std::string& flags) {
      REQUIRE(shell(ptxas() + " -arch=sm_90a " + flags + " " + folder.path("k.ptx") + " -o " +
                    folder.path("k.cubin"))
                  .exit_code == 0);
      return read_file(folder.path("k.cubin"));
    };
    CHECK(count_usetmaxreg(assembled("")) == count_setmaxnreg(source));
    CHECK(count_usetmaxreg(assembled("-c")) == 0);  // C7504: dropped for separate compilation
    CHECK(is_binary(assembled("")));
    CHECK_FALSE(is_binary(source));
  }
}

}  // namespace flashptx::test
