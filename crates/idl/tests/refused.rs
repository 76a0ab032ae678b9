//! Tests that compare the messages about IDL files with the text beside each file. `BLESS=1`
//! rewrites the messages.

use corelane_idl::NoFiles;
use corelane_idl::compile::{Compilation, CompileOptions};
use std::path::{Path, PathBuf};

#[test]
fn illegal_idl_is_refused_with_the_expected_messages() {
    let cases = compare("refused", &CompileOptions::default(), false);
    let missing: Vec<String> =
        (1..=114).map(|number| format!("{number:03}.idl")).filter(|name| !cases.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn questionable_idl_is_accepted_with_the_expected_warnings() {
    assert!(!compare("warned", &CompileOptions::default(), true).is_empty());
}

#[test]
fn names_that_differ_only_in_case_are_distinct_on_request() {
    let options = CompileOptions { is_case_sensitive: true, ..CompileOptions::default() };
    assert!(!compare("case_sensitive", &options, true).is_empty());
    assert!(!compare("case_sensitive_refused", &options, false).is_empty());
    let text = include_bytes!("case_sensitive/all.idl").to_vec();
    let compilation = Compilation::from_text(Path::new("all.idl"), text, &CompileOptions::default(), &NoFiles);
    assert!(!compilation.is_accepted());
}

fn compare(folder: &str, options: &CompileOptions, accepted: bool) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let bless = std::env::var_os("BLESS").is_some();
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "idl"));
    cases.sort();
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read(case).unwrap();
        let compilation = Compilation::from_text(Path::new(name), text, options, &NoFiles);
        let shown = compilation.diagnostics.render(&compilation.sources, false);
        let expected_at = case.with_extension("txt");
        if bless {
            std::fs::write(&expected_at, &shown).unwrap();
        }
        let expected = std::fs::read_to_string(&expected_at).unwrap_or_default();
        if compilation.is_accepted() != accepted {
            wrong.push(format!("{name}: accepted: {}\n{shown}", !accepted));
        } else if shown != expected {
            wrong.push(format!("{name}: expected\n{expected}\nfound\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    cases.iter().filter_map(|case| Some(case.file_name()?.to_str()?.to_owned())).collect()
}
