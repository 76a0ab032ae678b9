//! Tests that compile texts which are built to take unbounded memory or time, with the default
//! limits.

use corelane_idl::NoFiles;
use corelane_idl::compile::{Compilation, CompileOptions};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Returns tuples of a name, a text, and the beginning of the first message about the text. The
/// message is empty if the text is accepted.
fn texts() -> Vec<(&'static str, String, &'static str)> {
    let times = |piece: &str, count: usize| piece.repeat(count);
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let parameters = lines(250, &|n| if n == 0 { "p0".to_owned() } else { format!(",p{n}") });
    let many_bases = |n: usize| {
        let bases = lines(n, &|base| format!("{}I{base}", if base == 0 { " : " } else { ", " }));
        let operations = lines(40, &|operation| format!("void f{n}_{operation}();"));
        format!("interface I{n}{bases} {{ {operations} }};\n")
    };
    let mut enumeration = String::from("enum E { e0");
    let mut union = String::from("union U switch (E) {");
    for n in 0..50_000 {
        write!(enumeration, ", e{}", n + 1).unwrap();
        write!(union, "case e{n}: long m{n};").unwrap();
    }
    vec![
        (
            "arguments into a body",
            format!("#define F(x) {}\nF({})\n", times("x ", 20_000), times("1 ", 20_000)),
            "macros expand to more than 2000000 tokens",
        ),
        (
            "nested arguments",
            format!("#define F(x) x\n{}1{}\n", times("F(", 400_000), times(")", 400_000)),
            "macros expand to more than 2000000 tokens",
        ),
        (
            "nested arguments of a small text",
            format!("#define F(x) x\n{}1{}\n", times("F(", 200), times(")", 200)),
            "macro arguments are nested too deeply",
        ),
        (
            "long bodies, empty arguments",
            format!("#define F({parameters}) {}\n", times("p249 p1 ", 10_000))
                + &times(&format!("F({})\n", times(",", 249)), 3_000),
            "macros expand to more than 2000000 tokens",
        ),
        (
            "a chain of types",
            "typedef long T0;\n".to_owned() + &lines(50_000, &|n| format!("typedef T{n} T{};\n", n + 1)),
            "",
        ),
        (
            "a chain of structures",
            "struct S0 { long m0; };\n".to_owned()
                + &lines(1_500, &|n| format!("struct S{} : S{n} {{ long m{}; }};\n", n + 1, n + 1)),
            "this inherits from more than the limit of 200",
        ),
        (
            "many bases and operations",
            lines(200, &many_bases),
            "the generated Rust code is larger than 67108864 octets",
        ),
        ("a union of 50,000 arms", format!("{enumeration} }};\n{union}}};\n"), ""),
        (
            "arrays of arrays",
            "typedef string T0;\n".to_owned() + &lines(5, &|n| format!("typedef T{n} T{}[200000];\n", n + 1)),
            "the array has more than 268435456 elements",
        ),
        (
            "structures of structures",
            "struct S0 { long x; };\n".to_owned()
                + &lines(40, &|n| format!("struct S{} {{ S{n} a; S{n} b; }};\n", n + 1)),
            "structure `S29` has more than 268435456 elements, including those of its arrays",
        ),
        ("a large file", times("// nothing to see here\n", 3_000_000), "the file is larger than 67108864 octets"),
        ("a number of a megabyte", format!("const long x = {};", times("9", 1 << 20)), "`9999"),
        ("a name of a megabyte", format!("typedef {} T;", times("n", 1 << 20)), "`nnnn"),
    ]
}

#[test]
fn hostile_texts_are_compiled_in_bounded_memory() {
    let program = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "ulimit -v 1500000 && exec \"$0\" --exact --ignored in_bounded_memory",
        program.to_str().unwrap(),
    ]);
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by hostile_texts_are_compiled_in_bounded_memory, which bounds its memory"]
fn in_bounded_memory() {
    for (what, text, expected) in texts() {
        let options = CompileOptions { is_idl_4_enabled: true, ..CompileOptions::default() };
        let started = std::time::Instant::now();
        let mut compilation = Compilation::from_text(Path::new("a.idl"), text.into_bytes(), &options, &NoFiles);
        if compilation.is_accepted() {
            let _ = compilation.to_rust();
        }
        let first = compilation.diagnostics.list().first().map_or("", |first| first.message.as_str());
        assert!(first.starts_with(expected) && first.is_empty() == expected.is_empty(), "{what}: {first}");
        let shown = compilation.diagnostics.render(&compilation.sources, false);
        assert!(shown.len() < 1 << 20, "{what}: {} octets of messages", shown.len());
        println!("{what}: {:?}", started.elapsed());
    }
}
