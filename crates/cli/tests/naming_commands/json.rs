//! Tests of `--json` of the naming commands.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use super::super::{ANY_PORT, Folder, Server, corelane};
use super::{NOWHERE, Watching};

fn json_of(server: &Server, words: &[&str]) -> (i32, Vec<Json>) {
    let (status, text) = server.naming(&[words, &["--json"]].concat());
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")));
    (status, lines.collect())
}

fn done(server: &Server, words: &[&str]) -> Vec<Json> {
    let (status, lines) = json_of(server, words);
    assert_eq!(status, 0, "{words:?}: {lines:?}");
    lines
}

#[test]
fn names_are_shown_as_json() {
    let server = Server::start(ANY_PORT, &[]);
    let made = done(&server, &["new", "shop"]);
    let shop = made[0]["reference"].as_str().unwrap().to_owned();
    assert_eq!(made, [json!({ "schema": 1, "reference": shop })]);
    assert_eq!(done(&server, &["bind", "shop/a.obj", NOWHERE]), [] as [Json; 0]);
    assert_eq!(done(&server, &["bind", "shop/\x1b[2J", &shop]), [] as [Json; 0]);
    assert_eq!(done(&server, &["bind-context", "shop/up", &shop]), [] as [Json; 0]);
    assert_eq!(done(&server, &["resolve", "shop"]), [json!({ "schema": 1, "reference": shop })]);
    let bound = |name: &str, is_context: bool| json!({ "schema": 1, "name": name, "is_context": is_context });
    let expected = [bound("\x1b[2J", false), bound("a.obj", false), bound("up", true)];
    assert_eq!(done(&server, &["list", "shop"]), expected);
    let tree = |name: &str, is_context: bool, remark: Json| json!({ "schema": 1, "name": name, "is_context": is_context, "remark": remark });
    let expected = [
        tree("shop", true, Json::Null),
        tree("shop/\x1b[2J", false, Json::Null),
        tree("shop/a.obj", false, Json::Null),
        tree("shop/up", true, "a context above".into()),
    ];
    assert_eq!(done(&server, &["tree"]), expected);
    let (status, said) = json_of(&server, &["resolve", "shop/none"]);
    let reason = "not found: nothing is bound to the first component of `none`";
    assert_eq!((status, said), (1, vec![json!({ "schema": 1, "error": reason })]));
    assert!(server.done(&["list", "shop"]).starts_with("\\u{1b}[2J\n"));
}

#[test]
fn changes_are_shown_as_json() {
    let [server, other] = [0, 1].map(|_| Server::start(ANY_PORT, &[]));
    let mut watching = Watching::start(&server.url, &["--json", "--count", "2"]);
    server.done(&["new", "shop"]);
    server.done(&["bind", "shop/dead", NOWHERE]);
    let seen = [watching.next(), watching.next()].map(|line| serde_json::from_str::<Json>(&line).unwrap());
    let change = |name: &str, is_context: bool| json!({ "schema": 1, "change": "bound", "name": name, "is_context": is_context });
    assert_eq!(seen, [change("shop", true), change("shop/dead", false)]);
    watching.end();

    let copied = done(&other, &["import", "--from", &server.url]);
    let counts = |objects: u32, contexts: u32, already: u32, not_bound: u32| {
        let counts = [objects, contexts, already, not_bound].map(Json::from);
        let [objects, contexts, already, not_bound] = counts;
        json!({ "schema": 1, "objects": objects, "contexts": contexts, "already": already, "not_bound": not_bound })
    };
    assert_eq!(copied, [counts(1, 1, 0, 0)]);
    other.done(&["rebind", "shop/dead", &server.url]);
    let (status, said) = json_of(&other, &["import", "--from", &server.url]);
    let expected = [
        json!({ "schema": 1, "name": "shop/dead", "error": "the name is bound already" }),
        counts(0, 0, 1, 1),
        json!({ "schema": 1, "error": "1 names were not bound" }),
    ];
    assert_eq!((status, &said[..]), (1, &expected[..]));

    for (options, is_unbound) in [(&["prune", "--dry-run"][..], false), (&["prune"], true)] {
        let [line] = &done(&server, options)[..] else { panic!("not one line") };
        let found = line["found"].as_str().unwrap();
        assert!(found.starts_with("cannot be reached"), "{line}");
        let expected =
            json!({ "schema": 1, "name": "shop/dead", "found": found, "is_unbound": is_unbound, "error": null });
        assert_eq!(*line, expected);
    }
}

#[test]
fn server_and_copy_are_shown_as_json() {
    let folder = Folder::new("json");
    let (store, copy) = (folder.text("names.db"), folder.text("copy.db"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["naming", "serve", "--json", "--listen", ANY_PORT, "--store", &store]).env_remove("NOTIFY_SOCKET");
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    let shown: Json = serde_json::from_str(&line).unwrap();
    let url = shown["urls"][0].as_str().unwrap();
    assert!(url.starts_with("corbaloc::1.2@127.0.0.1:") && url.ends_with("/NameService"), "{shown}");
    assert!(shown["reference"].as_str().unwrap().starts_with("IOR:") && shown["schema"] == 1, "{shown}");
    let output = corelane(&["naming", "backup", "--json", "--store", &store, &copy]);
    let shown: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), shown), (Some(0), json!({ "schema": 1, "copy": copy })));
}
