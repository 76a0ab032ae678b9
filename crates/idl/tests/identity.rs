//! Tests of repository ids that pragmas set, in nested scopes and in included files
//! (CORBA 3.0.3 section 10.7.5).

use corelane_idl::compile::{Compilation, CompileOptions};
use corelane_idl::{FileSource, NoFiles};
use std::path::Path;

struct Texts(&'static [(&'static str, &'static str)]);

impl FileSource for Texts {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let name = path.file_name()?.to_str()?;
        self.0.iter().find(|(known, _)| *known == name).map(|(_, text)| text.as_bytes().to_vec())
    }
}

fn ids_with(text: &str, files: &dyn FileSource) -> Result<Vec<(String, String)>, String> {
    let options = CompileOptions { include: vec!["in".into()], ..CompileOptions::default() };
    let compilation = Compilation::from_text(Path::new("a.idl"), text.into(), &options, files);
    if !compilation.is_accepted() {
        return Err(compilation.diagnostics.render(&compilation.sources, false));
    }
    let (model, symbols) = (&compilation.model, &compilation.symbols);
    let all = model.definition_ids().map(|id| {
        let path = model.path(id);
        let names: Vec<&str> = path.iter().map(|id| symbols.text(model.get(*id).name)).collect();
        (names.join("::"), model.repository_id(id, symbols))
    });
    Ok(all.collect())
}

fn ids(text: &str) -> Result<Vec<(String, String)>, String> {
    ids_with(text, &NoFiles)
}

fn has(ids: &[(String, String)], expected: &[(&str, &str)]) {
    for (name, id) in expected {
        let found: Vec<&str> = ids.iter().filter(|(known, _)| known == name).map(|(_, id)| id.as_str()).collect();
        assert_eq!(found, [*id], "{name}");
    }
}

#[test]
fn names_in_a_pragma_are_looked_up_in_the_scope_of_the_pragma() {
    let text = "
        interface I { };
        module M {
            interface I { struct S { long x; }; };
            module N {
                interface J { };
                #pragma ID J \"IDL:j:2.5\"
                #pragma ID I \"IDL:inner:1.0\"
                #pragma version I::S 4.2
            };
            #pragma ID ::I \"LOCAL:outer\"
            #pragma version N::J2 1.1
            module N { interface K { }; };
            #pragma version N::K 3.0
        };
        #pragma version M::N 9.9
    ";
    let refused = ids(text).unwrap_err();
    assert!(refused.contains("J2") && !refused.contains("::S"), "{refused}");
    let known = ids(&text.replace("#pragma version N::J2 1.1", "")).unwrap();
    has(
        &known,
        &[
            ("I", "LOCAL:outer"),
            ("M", "IDL:M:1.0"),
            ("M::I", "IDL:inner:1.0"),
            // The id and version of a scope do not apply to its members.
            ("M::I::S", "IDL:M/I/S:4.2"),
            ("M::N", "IDL:M/N:9.9"),
            ("M::N::J", "IDL:j:2.5"),
            ("M::N::K", "IDL:M/N/K:3.0"),
        ],
    );
}

#[test]
fn prefix_ends_with_its_scope_and_version_and_id_apply_to_one_name() {
    let known = ids("
        #pragma prefix \"outer\"
        interface A { };
        module M {
            #pragma prefix \"inner\"
            interface A { };
            #pragma version A 2.0
            module N {
                #pragma prefix \"\"
                interface B { };
                interface C { };
                #pragma ID C \"IDL:c:1.0\"
            };
            interface D { };
        };
        interface E { };
        #pragma version E 1.7
        #pragma prefix \"later\"
        interface F { };
    ")
    .unwrap();
    has(
        &known,
        &[
            ("A", "IDL:outer/A:1.0"),
            ("M", "IDL:outer/M:1.0"),
            ("M::A", "IDL:inner/M/A:2.0"),
            ("M::N", "IDL:inner/M/N:1.0"),
            ("M::N::B", "IDL:M/N/B:1.0"),
            ("M::N::C", "IDL:c:1.0"),
            ("M::D", "IDL:inner/M/D:1.0"),
            ("E", "IDL:outer/E:1.7"),
            ("F", "IDL:later/F:1.0"),
        ],
    );
}

#[test]
fn each_file_has_its_own_prefix_and_pragmas_may_name_definitions_of_other_files() {
    static FILES: Texts = Texts(&[
        (
            "first.idl",
            "interface A { };\n#pragma prefix \"first\"\ninterface B { };\n#pragma version B 1.2\n#include \"second.idl\"\n\
             interface G { };\n",
        ),
        ("second.idl", "interface C { };\n#pragma prefix \"second\"\ninterface D { };\n#pragma ID A \"IDL:a:1.0\"\n"),
        ("inside.idl", "interface H { };\n#pragma prefix \"inside\"\ninterface I { };\n#pragma version H 2.2\n"),
    ]);
    let text = "#pragma prefix \"main\"\n#include <first.idl>\ninterface E { };\n#pragma version C 5.0\n\
                module M {\n#include <inside.idl>\ninterface J { };\n};\n#pragma version M::I 3.3\n";
    has(
        &ids_with(text, &FILES).unwrap(),
        &[
            ("A", "IDL:a:1.0"),
            ("B", "IDL:first/B:1.2"),
            ("C", "IDL:C:5.0"),
            ("D", "IDL:second/D:1.0"),
            ("G", "IDL:first/G:1.0"),
            ("E", "IDL:main/E:1.0"),
            // A file that is included inside a module also begins without a prefix.
            ("M::H", "IDL:M/H:2.2"),
            ("M::I", "IDL:inside/M/I:3.3"),
            ("M::J", "IDL:main/M/J:1.0"),
        ],
    );
}

#[test]
fn second_repository_id_or_version_is_refused() {
    let same = "struct S { long x; };\n#pragma ID S \"IDL:s:1.0\"\n#pragma ID ::S \"IDL:s:1.0\"\n";
    has(&ids(same).unwrap(), &[("S", "IDL:s:1.0")]);
    let twice = "struct S { long x; };\n#pragma version S 1.1\n#pragma version S 1.1\n";
    has(&ids(twice).unwrap(), &[("S", "IDL:S:1.1")]);
    let early = "interface I;\n#pragma ID I \"IDL:i:1.0\"\ninterface I { };\n";
    has(&ids(early).unwrap(), &[("I", "IDL:i:1.0")]);
    for (text, message) in [
        (
            "module M { struct S { long x; }; };\n#pragma ID M::S \"IDL:s:1.0\"\nmodule M {\n#pragma ID S \"IDL:t:1.0\"\n};\n",
            "second repository id",
        ),
        ("struct S { long x; };\n#pragma ID S \"IDL:s:1.0\"\n#pragma version S 1.1\n", "fixed already"),
        ("struct S { long x; };\n#pragma version S 1.1\n#pragma version S 1.2\n", "fixed already"),
        ("struct S { long x; };\n#pragma version S 1.70000\n", "is not a version"),
        ("module M { struct S { long x; }; };\n#pragma ID S \"IDL:s:1.0\"\n", "`S`"),
    ] {
        let refused = ids(text).unwrap_err();
        assert!(refused.contains(message), "{text}\n{refused}");
    }
}
