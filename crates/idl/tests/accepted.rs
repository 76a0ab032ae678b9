//! Tests that compile each IDL file in tests/accepted and compare the output with the file
//! `.expected` beside it. `BLESS=1` rewrites the expected files.

use corelane_idl::DiskFiles;
use corelane_idl::compile::{Compilation, CompileOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accepted");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "idl"));
    cases.sort();
    cases
}

#[test]
fn generated_code_equals_the_expected_file() {
    let bless = std::env::var_os("BLESS").is_some();
    for case in cases() {
        let text = std::fs::read(&case).unwrap();
        let options = CompileOptions { is_idl_4_enabled: true, ..CompileOptions::default() };
        let mut compilation = Compilation::from_text(&case, text, &options, &DiskFiles);
        let rust = compilation.to_rust();
        let shown = compilation.diagnostics.render(&compilation.sources, false);
        assert!(compilation.is_accepted(), "{}:\n{shown}", case.display());
        let expected_at = case.with_extension("expected");
        if bless {
            std::fs::write(&expected_at, &rust).unwrap();
        }
        let expected = std::fs::read_to_string(&expected_at).unwrap_or_default();
        let differs = rust.lines().zip(expected.lines()).position(|(one, two)| one != two);
        let place = differs.map_or(String::new(), |line| {
            format!(
                "line {}: expected\n{}\nfound\n{}",
                line + 1,
                expected.lines().nth(line).unwrap_or(""),
                rust.lines().nth(line).unwrap_or("")
            )
        });
        assert!(rust == expected, "{} has changed (BLESS=1 accepts it); {place}", expected_at.display());
    }
}

#[test]
fn generated_code_is_formatted_as_by_rustfmt() {
    for case in cases() {
        let file = std::fs::File::open(case.with_extension("expected")).unwrap();
        let output = Command::new("rustfmt")
            .args(["--edition", "2024", "--check", "--config", "max_width=100,use_small_heuristics=Default"])
            .stdin(file)
            .output()
            .expect("rustfmt comes with the toolchain of this workspace");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
