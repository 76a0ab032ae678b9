//! Compares the repository ids and constants of Corelane's IDL compiler with those of omniidl.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use corelane_idl::DiskFiles;
use corelane_idl::compile::{Compilation, CompileOptions};
use corelane_idl::model::{ConstantValue, DefinitionKind};
use corelane_idl::source::Span;

const FOLDERS: [&str; 2] = ["/usr/share/idl/omniORB", "/usr/share/idl/omniORB/COS"];

const DIFFERENT: &[(&str, &str)] = &[
    ("poa", "the module is the ORB's own here, and empty"),
    ("CosTSPortability", "omniidl has no `CORBA::Environment`"),
    ("DCE_CIOPSecurity", "`IOP.idl` is built in here"),
    ("constants", "omniidl takes `~0` for -1, whatever the type"),
    ("ids", "omniidl has no `typeid`"),
    ("orb_types", "omniidl's `orb.idl` has no `CORBA::Policy`"),
    ("places_of_annotations", "omniidl has no annotations"),
    ("raising_attributes", "omniidl has no `getraises`"),
    ("typeid_and_typeprefix", "omniidl has no `typeid`"),
    ("typeprefix_of_a_file", "omniidl has no `typeprefix`"),
];

/// The values of the constants with each repository id. `None` stands for a definition that is not
/// a constant.
type Meaning = BTreeMap<String, BTreeSet<Option<String>>>;

fn add(meaning: &mut Meaning, id: &str, value: Option<String>) {
    meaning.entry(id.to_owned()).or_default().insert(value);
}

fn ours(file: &Path, include: &[PathBuf]) -> Result<Meaning, String> {
    let options = CompileOptions { include: include.to_vec(), ..CompileOptions::default() };
    let compilation = Compilation::from_text(file, fs::read(file).unwrap(), &options, &DiskFiles);
    if !compilation.is_accepted() {
        return Err(compilation.diagnostics.render(&compilation.sources, false));
    }
    let (model, symbols) = (&compilation.model, &compilation.symbols);
    let mut meaning = Meaning::new();
    for id in model.definition_ids() {
        let definition = model.get(id);
        let built_in = definition.span == Span::default() || {
            let file = compilation.sources.file(compilation.sources.file_of(definition.span));
            file.path.starts_with("<built in>")
        };
        if built_in {
            continue;
        }
        let value = match &definition.kind {
            DefinitionKind::Constant(_, value) => Some(match value {
                ConstantValue::Enumerator(id) => model.repository_id(*id, symbols),
                other => shown(other),
            }),
            _ => None,
        };
        add(&mut meaning, &model.repository_id(id, symbols), value);
    }
    Ok(meaning)
}

/// Formats a constant as corelane_ids.py does. A text is formatted as the numbers of its
/// characters.
fn shown(value: &ConstantValue) -> String {
    match value {
        ConstantValue::Integer(number) => number.to_string(),
        ConstantValue::Float(number) => format!("{number:?}"),
        ConstantValue::LongDouble(number) => format!("{:?}", number.to_f64()),
        ConstantValue::Fixed(digits, scale) => {
            let (sign, digits) = (if *digits < 0 { "-" } else { "" }, digits.unsigned_abs().to_string());
            let scale = *scale as usize;
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
        }
        ConstantValue::Character(character) => u32::from(*character).to_string(),
        ConstantValue::String(text) => {
            text.chars().map(|character| u32::from(character).to_string()).collect::<Vec<_>>().join(" ")
        }
        ConstantValue::Boolean(value) => value.to_string(),
        ConstantValue::Enumerator(_) | ConstantValue::Faulty => String::new(),
    }
}

fn theirs(file: &Path, include: &[PathBuf]) -> Result<Meaning, String> {
    let back_end = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/omniorb");
    let mut omniidl = Command::new("omniidl");
    omniidl.args(["-nf", "-bcorelane_ids"]).arg(format!("-p{}", back_end.display()));
    omniidl.args(include.iter().map(|folder| format!("-I{}", folder.display()))).arg(file);
    let output = omniidl.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("the Debian package `omniidl`");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut meaning = Meaning::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split_once(" = ") {
            Some((id, value)) => add(&mut meaning, id, Some(number(value))),
            None => add(&mut meaning, line.trim_end_matches(" ="), line.ends_with(" =").then(String::new)),
        }
    }
    Ok(meaning)
}

fn number(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(number) if text.contains('e') || text.contains("inf") => format!("{number:?}"),
        _ => text.to_owned(),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "idl"));
    files.sort();
    files
}

fn compare(files: &[PathBuf], include: &[PathBuf]) -> (usize, usize) {
    let (mut both, mut constants, mut wrong) = (0, 0, Vec::new());
    for file in files {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let expected = DIFFERENT.iter().find(|(name, _)| *name == stem);
        let (ours, theirs) = (ours(file, include), theirs(file, include));
        let problem = match (ours, theirs) {
            (Ok(ours), Ok(theirs)) if ours == theirs => {
                both += 1;
                constants += ours.values().flatten().flatten().count();
                None
            }
            (Ok(ours), Ok(theirs)) => {
                let differs = ours.keys().chain(theirs.keys()).filter(|id| ours.get(*id) != theirs.get(*id));
                let lines: BTreeSet<String> =
                    differs.map(|id| format!("{id}: ours {:?}, theirs {:?}", ours.get(id), theirs.get(id))).collect();
                Some(lines.into_iter().take(10).collect::<Vec<_>>().join("\n"))
            }
            (Err(messages), Ok(_)) => Some(format!("refused by Corelane alone:\n{messages}")),
            (Ok(_), Err(messages)) => Some(format!("refused by omniidl alone:\n{messages}")),
            (Err(_), Err(_)) => None,
        };
        match (problem, expected) {
            (Some(problem), None) => wrong.push(format!("{}: {problem}", file.display())),
            (None, Some((_, why))) => wrong.push(format!(
                "{} has one interpretation now, although it is listed as different: {why}",
                file.display()
            )),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    (both, constants)
}

#[test]
fn omg_services_have_equal_ids_and_constants_in_both_compilers() {
    let include: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    let all: Vec<PathBuf> = include.iter().flat_map(|folder| files(folder)).collect();
    let (both, constants) = compare(&all, &include);
    println!("{both} files, {constants} constants");
    assert!(both > 50 && constants > 200, "{both} files, {constants} constants: is the package complete?");
}

#[test]
fn legal_idl_has_equal_ids_and_constants_in_both_compilers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/idl/tests/language");
    let (both, constants) = compare(&files(&folder), &[folder.join("inc")]);
    println!("{both} files, {constants} constants");
    assert!(both > 10 && constants > 20, "{both} files, {constants} constants");
}
