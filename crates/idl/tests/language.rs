//! Tests that each IDL file in tests/language is accepted without a message and has the definitions
//! in the list beside it. `BLESS=1` rewrites the lists.

use corelane_idl::DiskFiles;
use corelane_idl::compile::{Compilation, CompileOptions};
use corelane_idl::model::{ConstantValue, DefinitionKind, Type};
use std::fmt::Write as _;
use std::path::Path;

fn meaning(compilation: &Compilation) -> String {
    let mut lines = String::new();
    for id in compilation.model.definition_ids() {
        let definition = compilation.model.get(id);
        if definition.span == corelane_idl::source::Span::default() {
            continue;
        }
        lines.push_str(&compilation.model.repository_id(id, &compilation.symbols));
        let id_of = |id| compilation.model.repository_id(id, &compilation.symbols);
        match &definition.kind {
            DefinitionKind::Constant(_, ConstantValue::Enumerator(id)) => write!(lines, " = {}", id_of(*id)).unwrap(),
            DefinitionKind::Constant(_, value) => write!(lines, " = {value:?}").unwrap(),
            DefinitionKind::Typedef(ty) => match compilation.model.unaliased(ty) {
                Type::Named(id) => write!(lines, " {}", id_of(*id)).unwrap(),
                other => write!(lines, " {}", format!("{other:?}").split("Named").next().unwrap_or_default()).unwrap(),
            },
            _ => {}
        }
        lines.push('\n');
    }
    lines
}

#[test]
fn legal_idl_is_accepted_and_has_the_listed_definitions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/language");
    let bless = std::env::var_os("BLESS").is_some();
    let (mut wrong, mut cases) = (Vec::new(), 0);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let case = entry.unwrap().path();
        if case.extension().is_none_or(|extension| extension != "idl") {
            continue;
        }
        cases += 1;
        let mut compilation =
            Compilation::from_text(&case, std::fs::read(&case).unwrap(), &CompileOptions::default(), &DiskFiles);
        let _ = compilation.to_rust();
        let found = compilation.diagnostics.render(&compilation.sources, false) + &meaning(&compilation);
        let expected_at = case.with_extension("txt");
        if bless {
            std::fs::write(&expected_at, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&expected_at).unwrap_or_default();
        if found != expected || !compilation.diagnostics.list().is_empty() {
            wrong.push(format!("{}: expected\n{expected}\nfound\n{found}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases > 0);
}
