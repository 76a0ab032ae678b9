//! Compiles the IDL of the tests, and extracts the code examples of docs/rust-mapping.md.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    corelane_idl::Builder::new()
        .compile("idl/probe.idl")
        .compile("idl/dynamic.idl")
        .compile("idl/contexts.idl")
        .compile("idl/direct.idl")
        .compile("idl/face.idl")
        .compile("idl/timed.idl")
        .compile("idl/plain.idl")
        .compile("idl/large.idl")
        .compile("idl/paths.idl");
    corelane_idl::Builder::new().idl_4().compile("idl/lints.idl");
    corelane_idl::Builder::new().compile("idl/shared.types.idl");
    corelane_idl::Builder::new().external("shared.types.idl", "corelane_tests::shared").compile("idl/user.idl");
    corelane_idl::Builder::new().external("Shared", "corelane_tests::shared::shared").compile("idl/user_of_module.idl");
    corelane_idl::Builder::new()
        .idl_4()
        .derive("serde::Serialize")
        .derive("serde::Deserialize")
        .derive("PartialOrd")
        .compile("idl/derived.idl");
    corelane_idl::Builder::new().idl_4().compile("../crates/idl/tests/accepted/values.idl");
    corelane_idl::Builder::new().compile("../crates/idl/tests/accepted/names.idl");
    accepted(Path::new("../crates/idl/tests/accepted"));
    rust_mapping(Path::new("../docs/rust-mapping.md"));
}

fn accepted(folder: &Path) {
    println!("cargo:rerun-if-changed={}", folder.display());
    let output = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("accepted");
    fs::create_dir_all(&output).unwrap();
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "idl"));
    files.sort();
    let builder = corelane_idl::Builder::new().idl_4().output(&output);
    let mut modules = String::new();
    for file in files {
        builder.compile(&file);
        let name = file.file_stem().unwrap().to_string_lossy();
        writeln!(modules, "mod {name} {{").unwrap();
        writeln!(modules, "    include!(concat!(env!(\"OUT_DIR\"), \"/accepted/{name}.rs\"));\n}}").unwrap();
    }
    fs::write(output.join("all.rs"), modules).unwrap();
}

fn rust_mapping(page: &Path) {
    println!("cargo:rerun-if-changed={}", page.display());
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("rust_mapping");
    fs::create_dir_all(&folder).unwrap();
    let (mut idl, mut names) = (fs::read_to_string("idl/rust_mapping.idl").unwrap(), String::new());
    let text = fs::read_to_string(page).unwrap();
    let (mut section, mut number) = (String::new(), 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            let words = title.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
            section = words.collect::<Vec<_>>().join("_").to_lowercase();
            number = 0;
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let piece: String = lines.by_ref().take_while(|line| *line != "```").flat_map(|line| [line, "\n"]).collect();
        match language {
            "idl" => idl += &piece,
            "rust" => {
                number += 1;
                let name = format!("{section}_{number}");
                // `include!` expands to one expression, so several statements need a block.
                let statements = piece.lines().any(|line| line.starts_with("let "));
                let code = if statements { format!("{{\n{piece}}}\n") } else { piece };
                fs::write(folder.join(&name).with_extension("rs"), code).unwrap();
                writeln!(names, "{name}").unwrap();
            }
            _ => panic!("{}: a piece of code in `{language}`, which no test compiles", page.display()),
        }
    }
    fs::write(folder.join("names"), names).unwrap();
    let file = folder.join("page.idl");
    fs::write(&file, format!("module Page {{\n{idl}}};\n")).unwrap();
    corelane_idl::Builder::new().compile(file).compile("../examples/hello/echo.idl");
    println!("cargo:rerun-if-changed=idl/rust_mapping.idl");
}
