//! Tests of the command and of the builder for build scripts, with real files.

use corelane_idl::{Builder, command};
use std::ffi::OsString;
use std::path::PathBuf;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("include")).unwrap();
        std::fs::write(path.join("include/types.idl"), "typedef sequence<long> Longs;\n").unwrap();
        let main = "#include <types.idl>\ninterface Sum { long total(in Longs of); LONG more(); };\n";
        std::fs::write(path.join("sum.idl"), main).unwrap();
        std::fs::write(path.join("wrong.idl"), "struct S { Unknown a; };\nstruct S { long b; };\n").unwrap();
        Self(path)
    }

    fn run(&self, arguments: &[&str]) -> (u8, String) {
        let place = |argument: &&str| OsString::from(argument.replace('@', &format!("{}/", self.0.display())));
        let mut out = Vec::new();
        let status = command::run(arguments.iter().map(place), &mut out);
        (status, String::from_utf8(out).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn exit_status_distinguishes_acceptance_refusal_and_wrong_usage() {
    let folder = Folder::new("exit_status");
    let good = ["-I", "@include", "-DLONG=long", "--check", "@sum.idl"];
    assert_eq!(folder.run(&good), (command::EXIT_ACCEPTED, String::new()));
    let (status, shown) =
        folder.run(&["--check", "-I@include", "-D", "LONG=long", "@sum.idl", "@wrong.idl", "@absent.idl"]);
    assert_eq!(status, command::EXIT_REFUSED);
    assert!(shown.contains("`Unknown` is not declared") && shown.contains("declared twice"), "{shown}");
    assert!(shown.contains("wrong.idl` is refused: 2 errors") && shown.contains("cannot read"), "{shown}");
    assert_eq!(folder.run(&[]).0, command::EXIT_WRONG_USAGE);
    assert_eq!(folder.run(&["--chekc", "@sum.idl"]).0, command::EXIT_WRONG_USAGE);
    assert_eq!(folder.run(&["-I"]).0, command::EXIT_WRONG_USAGE);
    assert_eq!(folder.run(&["--help"]), (command::EXIT_ACCEPTED, command::USAGE.to_owned()));
}

#[test]
fn output_and_dependencies_are_written() {
    let folder = Folder::new("output");
    let arguments = ["-I", "@include", "-D", "LONG=long", "-o", "@out", "--depfile", "@sum.d", "@sum.idl"];
    assert_eq!(folder.run(&arguments), (command::EXIT_ACCEPTED, String::new()));
    let rust = std::fs::read_to_string(folder.0.join("out/sum.rs")).unwrap();
    assert!(rust.contains("pub type Longs = Vec<i32>;") && rust.contains("pub trait Sum"), "{rust}");
    let dependencies = std::fs::read_to_string(folder.0.join("sum.d")).unwrap();
    assert!(dependencies.contains("sum.idl") && dependencies.contains("include/types.idl"), "{dependencies}");
}

#[test]
fn dependency_file_is_escaped_for_make() {
    let folder = Folder::new("make");
    std::fs::write(folder.0.join("a b#$.idl"), "interface I {};\n").unwrap();
    assert_eq!(folder.run(&["-o", "@out", "--depfile=@d", "@a b#$.idl"]).0, command::EXIT_ACCEPTED);
    let folder_name = folder.0.display();
    let expected = format!("{folder_name}/out/a\\ b\\#$$.rs: {folder_name}/a\\ b\\#$$.idl\n");
    assert_eq!(std::fs::read_to_string(folder.0.join("d")).unwrap(), expected);
    assert_eq!(folder.run(&["--check", "--depfile", "@e", "@a b#$.idl"]).0, command::EXIT_ACCEPTED);
    assert!(!folder.0.join("e").exists());
    for wrong in ["--depfilex", "--message-formatjson"] {
        assert_eq!(folder.run(&["--check", wrong, "@sum.idl"]).0, command::EXIT_WRONG_USAGE, "{wrong}");
    }
}

#[test]
fn second_file_with_the_same_output_name_is_refused() {
    let folder = Folder::new("two_files");
    std::fs::write(folder.0.join("include/x.idl"), "interface First {};\n").unwrap();
    std::fs::write(folder.0.join("x.idl"), "interface Second {};\n").unwrap();
    let (status, shown) = folder.run(&["-o", "@out", "@include/x.idl", "@x.idl"]);
    assert!(status == command::EXIT_REFUSED && shown.contains("would both become `x.rs`"), "{shown}");
    assert!(std::fs::read_to_string(folder.0.join("out/x.rs")).unwrap().contains("First"));
    assert_eq!(folder.run(&["--check", "@include/x.idl", "@x.idl"]).0, command::EXIT_ACCEPTED);
}

#[test]
fn messages_without_a_location_are_json() {
    let folder = Folder::new("json_all");
    let many: String = (0..120).map(|n| format!("typedef Unknown T{n};\n")).collect();
    std::fs::write(folder.0.join("many.idl"), many).unwrap();
    let (_, shown) = folder.run(&["--message-format", "json", "--check", "@many.idl", "@absent.idl"]);
    assert_eq!(shown.lines().count(), 102, "{shown}");
    assert!(shown.lines().all(|line| line.starts_with("{\"severity\":\"error\"") && line.ends_with('}')), "{shown}");
    assert!(shown.contains("further ones are not shown") && shown.contains("cannot read"), "{shown}");
}

#[test]
fn each_message_is_one_line_of_json() {
    let folder = Folder::new("json");
    let (status, shown) = folder.run(&["--message-format=json", "--check", "@wrong.idl"]);
    assert_eq!((status, shown.lines().count()), (command::EXIT_REFUSED, 2));
    assert!(shown.lines().all(|line| line.starts_with("{\"severity\":\"error\"") && line.ends_with('}')), "{shown}");
}

#[test]
fn messages_with_special_characters_are_valid_json() {
    let folder = Folder::new("json_escapes");
    let name = "a \"b\"\\c\td.idl";
    std::fs::write(folder.0.join(name), "#error say \"no\" \\ or\tnot \u{1}\u{e9}\ntypedef Gone T;\n").unwrap();
    let (status, shown) = folder.run(&["--message-format=json", "--check", &format!("@{name}")]);
    assert_eq!(status, command::EXIT_REFUSED);
    let messages: Vec<serde_json::Value> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert_eq!(messages.len(), 2, "{shown}");
    assert!(messages[0]["message"].as_str().unwrap().contains("say \"no\" \\ or not \u{1}\u{e9}"), "{shown}");
    assert_eq!(messages[1]["message"], "`Gone` is not declared");
    let name = serde_json::to_string(name).unwrap();
    let known = messages.iter().filter(|message| message.to_string().contains(name.trim_matches('"')));
    assert_eq!(known.count(), 2, "{shown}");
}

#[test]
fn several_files_give_the_output_of_separate_runs() {
    let folder = Folder::new("several");
    std::fs::write(folder.0.join("other.idl"), "#include <types.idl>\nstruct S { Longs of; };\n").unwrap();
    let all = ["-I@include", "-DLONG=long", "-o", "@all", "--depfile", "@all.d", "@sum.idl", "@other.idl"];
    assert_eq!(folder.run(&all), (command::EXIT_ACCEPTED, String::new()));
    for name in ["sum", "other"] {
        let file = format!("@{name}.idl");
        let alone = ["-I@include", "-DLONG=long", "-o", "@alone", &file];
        assert_eq!(folder.run(&alone).0, command::EXIT_ACCEPTED);
        let read = |part: &str| std::fs::read(folder.0.join(part).join(name).with_extension("rs")).unwrap();
        assert_eq!(read("all"), read("alone"));
    }
    let at = folder.0.display();
    let expected = format!(
        "{at}/all/sum.rs: {at}/sum.idl {at}/include/types.idl\n{at}/all/other.rs: {at}/other.idl {at}/include/types.idl\n"
    );
    assert_eq!(std::fs::read_to_string(folder.0.join("all.d")).unwrap(), expected);
}

#[test]
fn builder_refuses_a_second_file_with_the_same_output_name() {
    let folder = Folder::new("builder_two_files");
    std::fs::write(folder.0.join("include/x.idl"), "interface First {};\n").unwrap();
    std::fs::write(folder.0.join("x.idl"), "interface Second {};\n").unwrap();
    let first = Builder::new().output(&folder.0).try_compile(&folder.0.join("include/x.idl")).unwrap();
    let refused = Builder::new().output(&folder.0).try_compile(&folder.0.join("x.idl")).unwrap_err();
    assert!(refused.contains("would both become"), "{refused}");
    assert!(std::fs::read_to_string(first).unwrap().contains("First"));
    assert!(Builder::new().output(folder.0.join("include")).try_compile(&folder.0.join("x.idl")).is_ok());
}

#[test]
fn builder_does_not_rewrite_unchanged_files() {
    let folder = Folder::new("builder");
    let builder = Builder::new().include(folder.0.join("include")).define("LONG", "long").output(&folder.0);
    let written = builder.try_compile(&folder.0.join("sum.idl")).unwrap();
    assert_eq!(written, folder.0.join("sum.rs"));
    let before = std::fs::metadata(&written).unwrap().modified().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    builder.try_compile(&folder.0.join("sum.idl")).unwrap();
    assert_eq!(std::fs::metadata(&written).unwrap().modified().unwrap(), before);
    let refused = builder.try_compile(&folder.0.join("wrong.idl")).unwrap_err();
    assert!(refused.contains("wrong.idl:1:12"), "{refused}");
}

#[test]
fn output_name_keeps_points_in_the_file_name() {
    let folder = Folder::new("points");
    std::fs::write(folder.0.join("shop.v1.idl"), "interface First {};\n").unwrap();
    std::fs::write(folder.0.join("shop.v2.idl"), "interface Second {};\n").unwrap();
    assert_eq!(folder.run(&["-o", "@out", "@shop.v1.idl", "@shop.v2.idl"]), (command::EXIT_ACCEPTED, String::new()));
    let read = |name: &str| std::fs::read_to_string(folder.0.join("out").join(name)).unwrap();
    assert!(read("shop.v1.rs").contains("First") && read("shop.v2.rs").contains("Second"));
    let builder = Builder::new().output(&folder.0);
    for name in ["shop.v1", "shop.v2"] {
        let written = builder.try_compile(&folder.0.join(format!("{name}.idl"))).unwrap();
        assert_eq!(written, folder.0.join(format!("{name}.rs")));
    }
}

#[test]
fn messages_about_files_with_crlf_show_no_carriage_return() {
    let folder = Folder::new("crlf");
    let unix = "struct S {\n  Unknown a;\n};\n#error gone\n";
    std::fs::write(folder.0.join("unix.idl"), unix).unwrap();
    std::fs::write(folder.0.join("dos.idl"), unix.replace('\n', "\r\n")).unwrap();
    let (_, expected) = folder.run(&["--check", "@unix.idl"]);
    let (_, shown) = folder.run(&["--check", "@dos.idl"]);
    assert!(shown.contains("Unknown a;"), "{shown}");
    let plain = |text: &str| text.replace("dos.idl", "unix.idl");
    assert_eq!(plain(&shown), expected);
}
