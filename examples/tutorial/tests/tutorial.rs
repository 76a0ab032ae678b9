//! Checks that docs/tutorial.md shows the files of this example, and that the programs print the
//! output that the page shows.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PAGE: &str = "../../docs/tutorial.md";
const MAX_LINES: usize = 160;
/// The server's address in the page. The test replaces it by the address of the server that it
/// starts, which has a free port.
const WRITTEN: &str = "127.0.0.1:2809";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn pieces(page: &str) -> Vec<(&str, &str)> {
    let pieces = page.split("\n```").skip(1).step_by(2);
    pieces.map(|piece| piece.split_once('\n').unwrap()).collect()
}

#[test]
fn page_shows_the_files_of_the_example() {
    let page = read(PAGE);
    let files = ["tank.idl", "src/server.rs", "src/client.rs", "Cargo.toml"].map(read);
    let mut shown = 0;
    for (language, piece) in pieces(&page).iter().filter(|(language, _)| *language != "console") {
        let dependency = r#"corelane-services = { path = "../corelane/crates/services" }"#;
        let piece = piece.replace(dependency, "corelane-services.workspace = true");
        assert!(files.iter().any(|file| file.contains(&format!("{piece}\n"))), "no file has\n{piece}");
        shown += usize::from(*language == "rust" || *language == "idl");
    }
    for file in &files[..3] {
        for line in file.lines().filter(|line| !line.trim().is_empty()) {
            assert!(page.contains(line), "{PAGE} does not show {line}");
        }
    }
    assert!(shown >= 5, "{shown} pieces");
    assert!(page.lines().count() <= MAX_LINES, "{PAGE} has {} lines", page.lines().count());
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns true if a line of output matches a line of the page, in which `...` matches any text.
fn is_shown(line: &str, shown: &str) -> bool {
    match shown.split_once("...") {
        Some((begin, end)) => line.starts_with(begin) && line.ends_with(end),
        None => line == shown,
    }
}

#[test]
fn programs_print_what_the_page_shows() {
    let page = read(PAGE);
    let consoles: Vec<&str> =
        pieces(&page).into_iter().filter(|(language, _)| *language == "console").map(|(_, piece)| piece).collect();
    let [session] = consoles[..] else { panic!("the page has {} sessions", consoles.len()) };
    let steps: Vec<(&str, &str)> =
        session[2..].split("\n$ ").map(|step| step.split_once('\n').unwrap_or((step, ""))).collect();
    let [(build, ""), (serve, url), (call, output)] = steps[..] else { panic!("{steps:?}") };
    assert_eq!(build, "cargo build");
    assert_eq!(serve, "target/debug/tank-server &");
    assert_eq!(call, format!("target/debug/tank-client {url}"));

    let mut server = Command::new(env!("CARGO_BIN_EXE_tank-server"));
    let mut server = Server(server.arg("tcp:127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap());
    let mut reference = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut reference).unwrap();
    let reference = reference.trim();
    let (address, _) = reference.strip_prefix("corbaname::1.2@").unwrap().split_once('#').unwrap();
    assert_eq!(reference.replace(address, WRITTEN), url);

    let client = Command::new(env!("CARGO_BIN_EXE_tank-client")).arg(reference).output().unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let said = String::from_utf8_lossy(&client.stdout);
    let (said, shown): (Vec<&str>, Vec<&str>) = (said.lines().collect(), output.lines().collect());
    assert_eq!(said.len(), shown.len(), "{said:?}");
    assert!(said.iter().zip(&shown).all(|(line, shown)| is_shown(line, shown)), "{said:?}");
}
