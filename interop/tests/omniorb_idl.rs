//! Every IDL file of Debian's package `omniorb-idl`, including the OMG's services, becomes Rust
//! that compiles without a warning.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use corelane_idl::DiskFiles;
use corelane_idl::compile::{Compilation, CompileOptions};

const FOLDERS: [&str; 2] = ["/usr/share/idl/omniORB", "/usr/share/idl/omniORB/COS"];

const REFUSED: [(&str, &str); 1] = [
    // `CORBA::Environment` is a native type of the C mapping.
    ("CosTSPortability", "a native type has no Rust mapping yet"),
];

fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        let entries = fs::read_dir(folder)
            .unwrap_or_else(|error| panic!("{folder}: {error}; the Debian package `omniorb-idl` contains it"));
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "idl"));
    files.sort();
    files
}

fn compiled(file: &Path) -> Result<String, String> {
    let security = ["Security", "SECIOP", "SSLIOP", "NRService"];
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("idl/policies");
    let own = security.iter().any(|name| stem(file).starts_with(name)).then_some(own);
    let include = own.into_iter().chain(FOLDERS.map(PathBuf::from)).collect();
    let options = CompileOptions { include, ..CompileOptions::default() };
    let mut compilation = Compilation::from_text(file, fs::read(file).unwrap(), &options, &DiskFiles);
    let rust = if compilation.is_accepted() { compilation.to_rust() } else { String::new() };
    if compilation.is_accepted() { Ok(rust) } else { Err(compilation.diagnostics.render(&compilation.sources, false)) }
}

fn stem(file: &Path) -> &str {
    file.file_stem().and_then(|stem| stem.to_str()).unwrap()
}

fn items(rust: &str) -> HashSet<&str> {
    let behind_title = rust.split_once('\n').map_or("", |(_, rest)| rest);
    behind_title.split("\n}\n").map(str::trim).collect()
}

fn distinct(mut made: Vec<(String, String)>) -> Vec<(String, String)> {
    made.sort_by_key(|(name, rust)| (std::cmp::Reverse(rust.len()), name.clone()));
    let mut kept: Vec<(String, String)> = Vec::new();
    for (name, rust) in made {
        let own = items(&rust);
        if !kept.iter().any(|(_, other)| own.is_subset(&items(other))) {
            kept.push((name, rust));
        }
    }
    kept
}

#[test]
fn every_file_becomes_rust_that_compiles() {
    let (mut made, mut wrong) = (Vec::new(), Vec::new());
    for file in files() {
        let expected = REFUSED.iter().find(|(name, _)| *name == stem(&file)).map(|(_, why)| *why);
        match (compiled(&file), expected) {
            (Ok(rust), None) => made.push((stem(&file).to_lowercase().replace('-', "_"), rust)),
            (Err(messages), Some(why)) if messages.contains(why) => {}
            (Ok(_), Some(_)) => wrong.push(format!("{} is accepted now", file.display())),
            (Err(messages), _) => wrong.push(format!("{}:\n{messages}", file.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let count = made.len();
    assert!(count >= 70, "only {count} files: is the package complete?");
    let kept = distinct(made);
    let lines: usize = kept.iter().map(|(_, rust)| rust.lines().count()).sum();
    println!("{count} files, of which {} are not contained in others, with {lines} lines of Rust", kept.len());
    let mut all: Vec<(String, String)> = kept;
    all.extend(own());
    check(&all);
}

fn own() -> Vec<(String, String)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let accepted = fs::read_dir(here.join("crates/idl/tests/accepted")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = accepted.chain([here.join("tests/idl/lints.idl")]).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "idl"));
    files.sort();
    let options = CompileOptions { is_idl_4_enabled: true, ..CompileOptions::default() };
    let made = files.iter().map(|file| {
        let mut compilation = Compilation::from_text(file, fs::read(file).unwrap(), &options, &DiskFiles);
        assert!(compilation.is_accepted(), "{}", file.display());
        (format!("own_{}", stem(file)), compilation.to_rust())
    });
    made.collect()
}

fn check(modules: &[(String, String)]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("omniorb-idl");
    let source = folder.join("src");
    let _ = fs::remove_dir_all(&source);
    fs::create_dir_all(&source).unwrap();
    let mut lib = "#![deny(warnings, elided_lifetimes_in_paths)]\n".to_owned();
    for (name, rust) in modules {
        fs::write(source.join(name).with_extension("rs"), rust).unwrap();
        lib += &format!("pub mod {name};\n");
    }
    fs::write(source.join("lib.rs"), lib).unwrap();
    let corelane = here.join("crates/orb");
    let manifest = format!(
        "[package]\nname = \"omniorb-idl\"\nedition = \"2024\"\n\n[dependencies]\ncorelane = {{ path = {corelane:?} }}\n\n[workspace]\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // With the workspace's lock file, Cargo downloads no packages.
    fs::copy(here.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["clippy", "--offline", "--quiet", "--target-dir"])
        .arg(folder.join("target"))
        .args(["--", "-D", "warnings"])
        .current_dir(&folder)
        .env("CARGO_INCREMENTAL", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}", said.chars().take(10_000).collect::<String>());
}

#[test]
fn code_that_other_code_contains_is_not_checked_twice() {
    let file = |name: &str, rust: &str| (name.to_owned(), rust.to_owned());
    let (a, b) = ("// a\npub mod a {\n    x\n}\n", "// b\npub mod b {\n}\n\npub mod a {\n    x\n}\n");
    let other = "// c\npub mod a {\n    y\n}\n";
    let kept = distinct(vec![file("a", a), file("b", b), file("c", other)]);
    assert_eq!(kept.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}
