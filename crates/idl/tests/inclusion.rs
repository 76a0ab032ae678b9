//! Tests of the search for included files, of repeated inclusion, and of the effect of included
//! text.

use corelane_idl::FileSource;
use corelane_idl::compile::{Compilation, CompileOptions};
use std::path::Path;

struct Texts<'t>(&'t [(&'t str, &'t str)]);

impl FileSource for Texts<'_> {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.0.iter().find(|(known, _)| Path::new(known) == path).map(|(_, text)| text.as_bytes().to_vec())
    }
}

fn said(text: &str, include: &[&str], files: &[(&str, &str)]) -> Vec<String> {
    let options = CompileOptions { include: include.iter().map(Into::into).collect(), ..CompileOptions::default() };
    let compilation = Compilation::from_text(Path::new("main/a.idl"), text.into(), &options, &Texts(files));
    let place = |diagnostic: &corelane_idl::diagnostic::Diagnostic| {
        let location = compilation.sources.location(diagnostic.span);
        format!("{}:{}: {}", location.path.display(), location.line, diagnostic.message)
    };
    compilation.diagnostics.list().iter().map(place).collect()
}

#[track_caller]
fn accepted(text: &str, include: &[&str], files: &[(&str, &str)]) {
    assert_eq!(said(text, include, files), Vec::<String>::new(), "{text}");
}

#[test]
fn file_in_quotes_is_first_searched_beside_the_including_file() {
    let files = [
        ("main/t.idl", "typedef long Beside;"),
        ("one/t.idl", "typedef long One;"),
        ("two/t.idl", "typedef long Two;"),
    ];
    accepted("#include \"t.idl\"\ntypedef Beside T;", &["one", "two"], &files);
    accepted("#include <t.idl>\ntypedef One T;", &["one", "two"], &files);
    accepted("#include <t.idl>\ntypedef Two T;", &["two", "one"], &files);
    accepted("#define WHICH <t.idl>\n#include WHICH\ntypedef One T;", &["one"], &files);
    let missing = said("#include <t.idl>\n", &["three"], &files);
    assert_eq!(missing, ["main/a.idl:1: there is no file `t.idl`"]);
}

#[test]
fn included_file_searches_its_own_folder() {
    let files = [
        ("one/outer.idl", "#include \"inner.idl\"\n"),
        ("one/inner.idl", "typedef long Right;\n"),
        ("main/inner.idl", "typedef long Wrong;\n"),
    ];
    accepted("#include \"../one/outer.idl\"\n", &[], &[("main/../one/outer.idl", "typedef long T;")]);
    accepted("#include <outer.idl>\ntypedef Right T;", &["one"], &files);
}

#[test]
fn include_guard_and_pragma_once_prevent_a_second_inclusion() {
    let guarded = "#ifndef G\n#define G\ntypedef long T;\n#endif\n";
    for text in [guarded, "#pragma once\ntypedef long T;\n", "_Pragma(\"once\") typedef long T;\n"] {
        accepted(
            "#include \"t.idl\"\n#include \"./t.idl\"\n#include \"t.idl\"\n",
            &[],
            &[("main/t.idl", text), ("main/./t.idl", text)],
        );
    }
    let twice = said("#include \"t.idl\"\n#include \"t.idl\"\n", &[], &[("main/t.idl", "interface T {};")]);
    assert_eq!(twice, ["main/t.idl:1: this file is included twice, and declares `T` each time"]);
    let again = said(
        "#include \"t.idl\"\n#undef G\n#include \"t.idl\"\n",
        &[],
        &[("main/t.idl", "#ifndef G\n#define G\ninterface T {};\n#endif\n")],
    );
    assert_eq!(again, ["main/t.idl:3: this file is included twice, and declares `T` each time"]);
}

#[test]
fn endless_inclusion_ends_with_one_message() {
    let endless = said("#include \"t.idl\"\n", &[], &[("main/t.idl", "#include \"t.idl\"\n")]);
    assert_eq!(endless, ["main/t.idl:1: files include each other more than 200 deep"]);
    let twice = "#include \"t.idl\"\n".repeat(2);
    let many = said(
        &twice,
        &[],
        &[
            ("main/t.idl", "#include \"u.idl\"\n"),
            ("main/u.idl", &"#include \"v.idl\"\n".repeat(10_000)),
            ("main/v.idl", "\n"),
        ],
    );
    assert_eq!(many.first().map(String::as_str), Some("main/u.idl:9997: more than 20000 inclusions"));
}

#[test]
fn file_can_be_included_inside_a_declaration() {
    let files = [
        ("main/members.inc", "long a;\nlong b;\n"),
        ("main/module.inc", "typedef long T;\n"),
        ("main/end.inc", "};\n"),
    ];
    accepted(
        "module M {\n#include \"module.inc\"\n};\nstruct S {\n#include \"members.inc\"\n};\ntypedef M::T U;",
        &[],
        &files,
    );
    accepted("struct S { long a;\n#include \"end.inc\"\ntypedef S T;", &[], &files);
    let open = said("#include \"open.inc\"\n#endif\n", &[], &[("main/open.inc", "#if 1\n")]);
    assert_eq!(
        open,
        ["main/open.inc:1: a condition has no `#endif`", "main/a.idl:2: `#endif` without a condition before it"]
    );
}

#[test]
fn line_directives_and_prefixes_end_with_their_file() {
    let files = [("main/t.idl", "#line 70 \"other.idl\"\n#pragma prefix \"in.org\"\ntypedef Missing T;\n")];
    let said = said("#include \"t.idl\"\ntypedef Gone V;\n", &[], &files);
    assert_eq!(said, ["other.idl:71: `Missing` is not declared", "main/a.idl:2: `Gone` is not declared"]);
}

#[test]
fn number_of_operations_of_an_interface_is_limited() {
    let operations: String = (0..10_001).map(|number| format!("void f{number}();\n")).collect();
    let many = said(&format!("interface I {{\n{operations}}};\n"), &[], &[]);
    assert_eq!(many.len(), 1, "{many:?}");
    assert!(many[0].contains("more than") && many[0].contains("10000"), "{many:?}");
}

#[test]
fn messages_are_in_the_order_in_which_the_files_are_read() {
    let files = [
        ("main/b.idl", "typedef Gone B1;\n#include \"c.idl\"\ntypedef Gone B2;\n"),
        ("main/c.idl", "#error c\nstruct C { long; };\n"),
    ];
    let text = "typedef Gone A1;\n#include \"b.idl\"\nstruct A { long; };\n#error a\ntypedef Gone A2;\n";
    let shown = said(text, &[], &files);
    let places: Vec<&str> = shown.iter().map(|line| line.split_once(": ").unwrap().0).collect();
    let expected = [
        "main/a.idl:1",
        "main/b.idl:1",
        "main/c.idl:1",
        "main/c.idl:2",
        "main/b.idl:3",
        "main/a.idl:3",
        "main/a.idl:4",
        "main/a.idl:5",
    ];
    assert_eq!(places, expected, "{shown:?}");
}

#[test]
fn second_inclusion_of_a_file_without_a_guard_is_reported_once() {
    let files = [("main/b.idl", "struct Z { long a; };\nconst long K = 1;\nmodule M { typedef long T; };\n")];
    let twice = said("#include \"b.idl\"\n#include \"b.idl\"\ntypedef Z T;\n", &[], &files);
    assert_eq!(twice, ["main/b.idl:1: this file is included twice, and declares `Z` each time"]);
    let macros = said("#define TWICE long a; long a;\nstruct S { TWICE };\n", &[], &[]);
    assert_eq!(macros, ["main/a.idl:2: `a` is declared twice in one scope"]);
}
