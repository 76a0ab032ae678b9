//! Tests of `corelane ior` and `corelane ior make` with recorded, damaged and very long references.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("the program ends by itself")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn file(name: &str, content: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ior");
    fs::create_dir_all(&folder).expect("a folder for the test");
    let path = folder.join(name);
    fs::write(&path, content).expect("written");
    path.to_string_lossy().into_owned()
}

fn recorded() -> Vec<(String, Json)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/vectors");
    let mut found = Vec::new();
    for product in ["tao", "omniorb"] {
        let content = fs::read_to_string(folder.join(product).join("iors.json")).expect("the vectors are there");
        let content: Json = serde_json::from_str(&content).expect("JSON");
        for vector in content["vectors"].as_array().expect("vectors") {
            found.push((vector["ior"].as_str().expect("an IOR").to_owned(), vector["expected"].clone()));
        }
    }
    assert!(found.len() >= 40, "{}", found.len());
    found
}

fn shown(name: &str, references: &[String]) -> Vec<Json> {
    let output = corelane(&["ior", "--json", &format!("@{}", file(name, &references.join("\n")))]);
    assert_eq!(status(&output), 0, "{}", text(&output));
    text(&output).lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn word(json: &Json) -> String {
    json.as_str().expect("a text").to_owned()
}

#[test]
fn recorded_references_have_their_documented_meaning() {
    let recorded = recorded();
    let references: Vec<String> = recorded.iter().map(|(reference, _)| reference.clone()).collect();
    let all = shown("meaning", &references);
    assert_eq!(all.len(), recorded.len());
    for (shown, (_, expected)) in all.iter().zip(&recorded) {
        assert_eq!(shown["type_id"], expected["type_id"]);
        let (ours, theirs) = (shown["profiles"].as_array().unwrap(), expected["profiles"].as_array().unwrap());
        assert_eq!(ours.len(), theirs.len(), "{expected}");
        for (our, their) in ours.iter().zip(theirs) {
            assert_eq!((&our["tag"], &our["version"]), (&their["tag"], &their["version"]), "{their}");
            assert_eq!(our["key"]["octets"], their["object_key_hex"], "{their}");
            if their["host"].is_string() {
                assert_eq!((&our["address"]["host"], &our["address"]["port"]), (&their["host"], &their["port"]));
            }
            let (ours, theirs) = (our["components"].as_array().unwrap(), their["components"].as_array().unwrap());
            assert_eq!(ours.len(), theirs.len(), "{their}");
            for (our, their) in ours.iter().zip(theirs) {
                assert_eq!(our["tag"], their["tag"]);
                assert_eq!(our["data"].as_str().unwrap().len() as u64, 2 * their["octets"].as_u64().unwrap());
                if let Some(orb) = their["orb_type"].as_str() {
                    assert_eq!(format!("{:#010x}", our["value"].as_u64().unwrap()), orb);
                }
                if let Some(native) = their["char"]["native"].as_str() {
                    assert_eq!(format!("{:#010x}", our["value"]["char"]["native"]["number"].as_u64().unwrap()), native);
                }
            }
        }
    }
}

#[test]
fn recorded_references_are_made_from_their_parts_again() {
    let references: Vec<String> = recorded().into_iter().map(|(reference, _)| reference).collect();
    let all = shown("parts", &references);
    let (mut made, mut parts, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for one in &all {
        let profiles = one["profiles"].as_array().unwrap();
        let mut words = vec!["ior".to_owned(), "make".to_owned(), "--type-id".to_owned(), word(&one["type_id"])];
        for profile in profiles {
            words.extend(["--profile".to_owned(), format!("{}={}", profile["tag"], word(&profile["data"]))]);
        }
        let output = corelane(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(status(&output), 0, "{}", text(&output));
        whole.push(text(&output).trim().to_owned());
        for profile in profiles {
            let address = &profile["address"];
            let place = match (profile["tag"].as_u64(), address["host"].as_str(), address["path"].as_str()) {
                (Some(0), Some(host), _) => format!("tcp:{host}:{}", address["port"]),
                (Some(0x5441_4f00), None, Some(path)) => format!("uiop:{path}"),
                _ => continue,
            };
            let mut words = ["ior", "make", "--address", &place, "--version"].map(str::to_owned).to_vec();
            words.extend([word(&profile["version"]), "--key-hex".to_owned(), word(&profile["key"]["octets"])]);
            words.extend(["--type-id".to_owned(), word(&one["type_id"])]);
            for component in profile["components"].as_array().unwrap() {
                let component = format!("{}={}", component["tag"], word(&component["data"]));
                words.extend(["--component".to_owned(), component]);
            }
            let output = corelane(&words.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(status(&output), 0, "{}", text(&output));
            made.push(text(&output).trim().to_owned());
            parts.push((one["type_id"].clone(), profile.clone()));
        }
    }
    assert_eq!(shown("whole", &whole), all, "all profiles keep their octets and order");
    assert!(made.len() >= 40, "{}", made.len());
    for (again, (type_id, profile)) in shown("made", &made).iter().zip(&parts) {
        assert_eq!(&again["type_id"], type_id);
        let again = &again["profiles"][0];
        for part in ["tag", "version", "address", "connect", "key", "components"] {
            assert_eq!(again[part], profile[part], "{part}");
        }
    }
}

#[test]
fn references_come_from_files_words_and_the_standard_input() {
    let path = file("two", "corbaloc::one/k\n\n  corbaloc::two/k  \n");
    let output = corelane(&["ior", &format!("@{path}"), "corbaloc::three/k"]);
    assert_eq!(status(&output), 0);
    let said = text(&output);
    assert!(said.contains("one:2809") && said.contains("two:2809") && said.contains("three:2809"), "{said}");
    for (words, reason) in [
        (["ior", "@missing", "corbaloc::other/k"], "error: `missing` cannot be read: "),
        (["ior", "@/dev/zero", "corbaloc::other/k"], "error: `/dev/zero` holds more than 16777216 octets"),
    ] {
        let output = corelane(&words);
        assert_eq!(status(&output), 1);
        assert!(text(&output).starts_with(reason) && text(&output).contains("other:2809"), "{}", text(&output));
    }
}

#[test]
fn huge_and_damaged_references_are_shown_or_refused() {
    let key = |octets: usize| format!("corbaloc::h/{}", "k".repeat(octets));
    for (name, reference, expected) in [
        ("largest", key((1 << 20) - 12), 0),
        ("longer", key((1 << 20) - 11), 1),
        ("longest", format!("IOR:{}", "00".repeat(1 << 20)), 1),
        ("many", format!("corbaloc:{}/k", vec![":h"; 65].join(",")), 1),
        ("zeros", format!("IOR:{}", "00".repeat(1 << 18)), 0),
        ("counts", format!("IOR:0000000000000001000000007fffffff{}", "ff".repeat(64)), 1),
        ("controls", "corbaname::h#a%1b%5b2J%c2%9b".to_owned(), 0),
    ] {
        for words in [&["ior"][..], &["ior", "--json"]] {
            let path = format!("@{}", file(name, &reference));
            let output = corelane(&[words, &[&path]].concat());
            let said = text(&output);
            assert_eq!(status(&output), expected, "{name}: {}", &said[..said.len().min(300)]);
            assert!(expected == 0 || said.len() < 400, "{name}: messages are short");
            let control = said.chars().find(|character| character.is_control() && *character != '\n');
            assert_eq!(control, None, "{name}");
            if words.len() == 2 {
                said.lines().for_each(|line| drop(serde_json::from_str::<Json>(line).expect("each line is JSON")));
            }
        }
    }
    let whole = recorded().swap_remove(0).0;
    let mut lines: Vec<String> = (4..whole.len()).map(|end| whole[..end].to_owned()).collect();
    lines.extend((4..whole.len()).map(|at| {
        let mut changed = whole.clone();
        changed.replace_range(at..=at, if &whole[at..=at] == "f" { "0" } else { "f" });
        changed
    }));
    for words in [&["ior"][..], &["ior", "--json"]] {
        let path = format!("@{}", file("cuts", &lines.join("\n")));
        let output = corelane(&[words, &[&path]].concat());
        assert_eq!(status(&output), 1);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "no panic");
    }
}
