//! Tests of `corelane sniff` with recorded messages of other ORBs as captured traffic.

#[path = "../../sniff/tests/capture/mod.rs"]
mod capture;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

use capture::{Conversation, Sent, pcap, pcapng};

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/vectors")
}

fn idl() -> String {
    vectors().join("fix.idl").to_string_lossy().into_owned()
}

fn recorded(product: &str, file: &str) -> Vec<Json> {
    let path = vectors().join(product).join(file);
    let content: Json = serde_json::from_str(&fs::read_to_string(path).expect("the vectors are there")).expect("JSON");
    content["vectors"].as_array().expect("vectors").clone()
}

fn octets(hexadecimal: &Json) -> Vec<u8> {
    let digits = hexadecimal.as_str().expect("digits");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits")).collect()
}

fn traffic(vectors: &[Json], segment: usize) -> Vec<Sent> {
    let mut connections: HashMap<String, Conversation> = HashMap::new();
    let mut packets = Vec::new();
    for vector in vectors {
        let name = vector["connection"].as_str().expect("a connection");
        let port = 4_000 + u16::try_from(connections.len()).expect("few connections");
        let begin = || Conversation::begin(&format!("192.0.2.1:{port}"), "192.0.2.2:2809", u32::MAX - 1_000);
        let connection = connections.entry(name.to_owned()).or_insert_with(begin);
        connection.send(vector["direction"] == "server->client", &octets(&vector["bytes_hex"]), segment);
        packets.append(&mut connection.packets);
    }
    for connection in connections.values_mut() {
        connection.end();
        packets.append(&mut connection.packets);
    }
    packets
}

fn file(name: &str, content: &[u8]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sniff");
    fs::create_dir_all(&folder).expect("a folder for the test");
    let path = folder.join(name);
    fs::write(&path, content).expect("written");
    path.to_string_lossy().into_owned()
}

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn shown(words: &[&str]) -> Vec<Json> {
    let output = corelane(&[&["sniff", "--json"], words].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    text(&output).lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// Returns true for numbers and for objects of numbers, because the vectors and the command show
/// such values in the same form.
fn is_comparable(value: &Json) -> bool {
    match value {
        Json::Number(_) => true,
        Json::Object(members) => members.values().all(Json::is_number) && !members.contains_key("value"),
        _ => false,
    }
}

#[test]
fn recorded_messages_are_shown_with_their_arguments() {
    let mut compared = 0;
    for product in ["tao", "omniorb"] {
        for (name, segment) in [("giop10.json", 1_400), ("giop11.json", 5), ("giop12.json", 60)] {
            let vectors = recorded(product, name);
            let packets = traffic(&vectors, segment);
            let capture = if segment == 5 { pcapng(&packets) } else { pcap(&packets) };
            let path = file(&format!("{product}-{name}.pcap"), &capture);
            let lines = shown(&["--idl", &idl(), &path]);
            assert_eq!(lines.len(), vectors.len(), "{product} {name}");
            for (line, vector) in lines.iter().zip(&vectors) {
                let expected = &vector["expected"];
                let part = |name: &str| expected.get(name).cloned().unwrap_or_default();
                assert_eq!((&line["kind"], &line["version"]), (&part("type"), &part("version")), "{vector}");
                assert_eq!(line.get("request_id").cloned().unwrap_or_default(), part("request_id"), "{line}");
                match line["kind"].as_str() {
                    Some("Request") => assert_eq!(line["operation"], part("operation"), "{line}"),
                    Some("Reply") => {
                        assert_eq!(line["status"], part("reply_status"), "{line}");
                        assert!(line["operation"].is_string() && line["after_ns"].is_u64(), "{line}");
                    }
                    Some("LocateReply") => assert_eq!(line["status"], part("locate_status"), "{line}"),
                    _ => {}
                }
                for (values, expected) in [("arguments", part("arguments")), ("results", part("result"))] {
                    let (Some(values), Some([expected])) =
                        (line[values].as_object(), expected.as_array().map(Vec::as_slice))
                    else {
                        continue;
                    };
                    if is_comparable(expected) {
                        assert_eq!(values.values().collect::<Vec<_>>(), [expected], "{line}");
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared >= 60, "{compared}");
}

#[test]
fn fragments_are_shown_as_one_message() {
    for product in ["tao", "omniorb"] {
        let vectors = recorded(product, "fragments.json");
        let path = file(&format!("{product}-fragments.pcap"), &pcap(&traffic(&vectors, 1_400)));
        let lines = shown(&["--idl", &idl(), &path]);
        let is_part = |vector: &&Json| vector["expected"]["type"] == "Fragment";
        assert_eq!(lines.len(), vectors.len() - vectors.iter().filter(is_part).count(), "{product}");
        for line in &lines {
            assert!(line["kind"].is_string() && line.get("not_decoded").is_none(), "{line}");
        }
        let octets = |vector: &Json| octets(&vector["bytes_hex"]).len() - if is_part(&vector) { 16 } else { 0 };
        let shown: u64 = lines.iter().filter_map(|line| line["size"].as_u64()).sum();
        assert_eq!(shown, vectors.iter().map(octets).sum::<usize>() as u64, "{product}");
    }
}

#[test]
fn operations_of_every_object_are_shown_with_their_arguments() {
    let idl = idl();
    let lines = |product: &str, file_name: &str| {
        let path =
            file(&format!("object-{product}-{file_name}.pcap"), &pcap(&traffic(&recorded(product, file_name), 1_400)));
        shown(&["--idl", &idl, "--operation", "_is_a", "--operation", "_non_existent", &path])
    };
    let of = |lines: &[Json], kind: &str| lines.iter().filter(|line| line["kind"] == kind).cloned().collect::<Vec<_>>();
    let is_a = lines("omniorb", "giop12.json");
    assert!(of(&is_a, "Request")[0]["arguments"]["logical_type_id"].as_str().unwrap().starts_with("IDL:"), "{is_a:?}");
    assert!(of(&is_a, "Reply")[0]["results"]["result"].is_boolean(), "{is_a:?}");
    let non_existent = lines("tao", "giop12.json");
    assert_eq!(of(&non_existent, "Request")[0]["arguments"], serde_json::json!({}));
    assert!(of(&non_existent, "Reply")[0]["results"]["result"].is_boolean(), "{non_existent:?}");
}

#[test]
fn filters_omit_messages() {
    let vectors = recorded("omniorb", "giop12.json");
    let path = file("filters.pcap", &pcap(&traffic(&vectors, 1_400)));
    let all = shown(&[&path]);
    assert!(all.iter().all(|line| line.get("arguments").is_none()), "{all:?}");
    let some = shown(&["--operation", "cube_long", "--operation", "note", &path]);
    let operations: Vec<&str> = some.iter().map(|line| line["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["note", "cube_long", "cube_long"]);
    assert_eq!(shown(&["--port", "4000", &path]), all);
    assert_eq!(shown(&["--port", "2810", &path]), [] as [Json; 0]);
    let replies = all.iter().filter(|line| line["after_ns"].as_u64().is_some_and(|time| time > 500_000)).count();
    assert_eq!(shown(&["--slower", "0.0005", &path]).len(), replies);
    assert!(replies > 10 && shown(&["--slower", "10", &path]).is_empty());
}

#[test]
fn gap_and_truncated_file_are_reported() {
    let vectors = recorded("omniorb", "giop12.json");
    let mut packets = traffic(&vectors, 1_400);
    let request =
        packets.iter().position(|sent| sent.octets.windows(10).any(|octets| octets == b"cube_octet")).unwrap();
    let lost = packets.remove(request).octets.len();
    let path = file("gap.pcap", &pcap(&packets));
    let lines = shown(&[&path]);
    let gaps: Vec<&Json> = lines.iter().filter_map(|line| line.get("lost_octets")).collect();
    assert_eq!(gaps, [&Json::from(lost)]);
    let alone = lines.iter().filter(|line| line["kind"] == "Reply" && line["operation"].is_null()).count();
    assert!(alone == 1 && !lines.iter().any(|line| line["operation"] == "cube_octet"), "{lines:?}");
    let said = text(&corelane(&["sniff", &path]));
    assert!(said.contains(&format!("{lost} octets are not in the capture")), "{said}");
    assert!(said.contains("(its request is not in the capture)"), "{said}");

    let whole = pcap(&packets);
    let path = file("cut.pcap", &whole[..whole.len() - 3]);
    let output = corelane(&["sniff", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).ends_with(&format!("error: `{path}`: it ends within a packet\n")), "{}", text(&output));
    let output = corelane(&["sniff", "--json", &idl()]);
    let line: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line["error"].as_str().unwrap().ends_with("it is neither pcap nor pcapng"), "{line}");
}

#[test]
fn interface_is_captured_with_dumpcap() {
    let vectors = recorded("omniorb", "giop12.json");
    let capture = file("device.pcap", &pcapng(&traffic(&vectors, 1_400)));
    let expected = shown(&["--port", "2809", &capture]);
    let script = format!("#!/bin/sh\necho \"$@\" > '{capture}.words'\ncat '{capture}'\n");
    let text_file = file("dumpcap.text", script.as_bytes());
    // The kernel may refuse to run a script that this process has written, while another thread
    // starts a process. So `install` writes the script.
    let script = text_file.replace("dumpcap.text", "dumpcap");
    let status = Command::new("install").args(["-m", "755", &text_file, &script]).status().unwrap();
    assert!(status.success());
    let folder = Path::new(&script).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let run = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["sniff", "--json", "--interface", "lo", "--port", "2809"]).env("PATH", path).output().unwrap()
    };
    let output = run(&path);
    let lines = text(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Json>>();
    assert_eq!((output.status.code(), lines), (Some(0), expected));
    assert_eq!(fs::read_to_string(format!("{capture}.words")).unwrap(), "-q -i lo -f tcp port 2809 -w -\n");
    let output = run("/nowhere");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("dumpcap cannot be started"), "{}", text(&output));
}

#[test]
fn examples_of_the_page_print_what_the_page_shows() {
    let page = include_str!("../../../docs/sniff.md");
    let vectors = recorded("omniorb", "giop12.json");
    file("calls.pcap", &pcap(&traffic(&vectors, 1_400)));
    let folder = PathBuf::from(file("fix.idl", fs::read_to_string(idl()).unwrap().as_bytes()));
    let folder = folder.parent().unwrap();
    let block = page.split("```console\n$ ").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    let mut examples = 0;
    for example in block.split("\n$ ") {
        let (command, expected) = example.split_once('\n').unwrap();
        let words = command.strip_prefix("corelane ").unwrap().split(' ');
        let mut process = Command::new(env!("CARGO_BIN_EXE_corelane"));
        let output = process.args(words).current_dir(folder).stdin(Stdio::null()).output().unwrap();
        let said = text(&output);
        assert_eq!(said.lines().count(), expected.lines().count(), "{command}\n{said}");
        for (line, expected) in said.lines().zip(expected.lines()) {
            let mut rest = line;
            for part in expected.split("...") {
                let at = rest.find(part).unwrap_or_else(|| panic!("{line}\nis not\n{expected}"));
                rest = &rest[at + part.len()..];
            }
        }
        examples += 1;
    }
    assert_eq!(examples, 2);
}
