//! Tests of references that commands read from files, and of the doctor's findings about a name.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use corelane::{Endpoint, Orb};
use corelane_services::naming::NamingConfig;
use corelane_services::naming::cos_naming::NameComponent;
use serde_json::Value as Json;

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The reference in a file must not name a further file, which may be endless.
#[test]
fn reference_in_a_file_is_not_a_file_name() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("references");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("further.ior");
    fs::write(&file, "@/dev/zero\n").unwrap();
    let word = format!("@{}", file.display());
    for words in [
        &["ping", &word][..],
        &["doctor", &word],
        &["naming", "list", "--at", &word],
        &["naming", "import", "--from", &word],
        &["naming", "bind", "--at", "corbaloc::1.2@127.0.0.1:1/k", "a", &word],
    ] {
        let output = corelane(words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("`@/dev/zero`") && !said.contains("octets"), "{words:?}: {said}");
    }
}

#[test]
fn doctor_distinguishes_the_name_server_from_the_object() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let naming = NamingConfig::new().serve(&orb).unwrap();
    let root = naming.reference();
    root.bind(&[NameComponent { id: "shop".to_owned(), kind: String::new() }], Some(root.as_object())).unwrap();
    let Some(Endpoint::Tcp { port, .. }) = orb.endpoints().first() else { panic!("no TCP endpoint") };
    let reference = format!("corbaname::1.2@127.0.0.1:{port}#shop");
    let output = corelane(&["doctor", "--json", &reference]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let shown: Json = serde_json::from_slice(&output.stdout).unwrap();
    let findings = shown["findings"].as_array().unwrap();
    let checks = |object: &str| -> Vec<&str> {
        let of_object = findings.iter().filter(|finding| finding["object"] == object);
        of_object.map(|finding| finding["check"].as_str().unwrap()).collect()
    };
    let all = ["reference", "GIOP version", "code sets", "limits", "publish address", "route", "server", "object"];
    assert_eq!(checks("name server"), all);
    assert_eq!(checks("object"), [&["name"][..], &all].concat());
    let said = text(&corelane(&["doctor", &reference]));
    assert_eq!(said.matches(" name server: ").count(), all.len(), "{said}");
    let said = text(&corelane(&["doctor", &format!("corbaname::1.2@127.0.0.1:{port}")]));
    assert!(said.contains("The object can be called.") && !said.contains(" name server: "), "{said}");
}
