//! Checks that the hello world example is short, that its documentation page and the README show
//! its text, and that it works.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const FILES: [(&str, &str, usize); 4] = [
    ("echo.idl", "idl", usize::MAX),
    ("build.rs", "rust", 5),
    ("src/server.rs", "rust", 25),
    ("src/client.rs", "rust", 15),
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn hello_world_does_not_exceed_its_number_of_lines() {
    for (file, _, most) in FILES {
        let text = read(file);
        let counts = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let lines = text.lines().filter(counts).count();
        assert!(lines <= most, "{file} has {lines} lines that are neither blank nor comment, the budget is {most}");
    }
}

const PAGE: &str = "../../docs/first-program.md";

#[test]
fn page_shows_the_files_of_the_example() {
    let page = read(PAGE);
    for (file, language, _) in FILES {
        let shown = format!("`{file}`\n```{language}\n{}```\n", read(file));
        assert!(page.contains(&shown), "{PAGE} does not show examples/hello/{file} as it is:\n{shown}");
    }
}

#[test]
fn readme_shows_parts_of_the_files_of_the_example() {
    let readme = read("../../README.md");
    assert!(readme.contains(&format!("`echo.idl`\n```idl\n{}```\n", read("echo.idl"))));
    let parts: Vec<&str> = readme.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    for (part, file) in parts.iter().zip(["src/server.rs", "src/client.rs"]) {
        assert!(read(file).contains(part), "examples/hello/{file} does not have this part of README.md:\n{part}");
    }
    assert_eq!(parts.len(), 2);
    let (_, dependencies) = readme.split_once("```toml\n").expect("README.md must show dependencies");
    let dependencies = dependencies.split_once("```").unwrap().0;
    assert!(read(PAGE).contains(dependencies), "{PAGE} shows other dependencies than README.md:\n{dependencies}");
}

#[test]
fn commands_on_the_page_start_the_programs_of_the_example() {
    let page = read(PAGE);
    let commands: Vec<&str> = page.lines().rev().take_while(|line| line.starts_with("    ")).collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let [client, server, build] = [0, 1, 2].map(|at| words(commands[at]));
    let own = read("Cargo.toml");
    assert_eq!(build[..4], ["cargo", "build", "--release", "--package"]);
    assert!(own.contains(&format!("name = \"{}\"\n", build[4])), "{build:?}");
    for (program, built) in
        [(&server[0], env!("CARGO_BIN_EXE_hello-server")), (&client[0], env!("CARGO_BIN_EXE_hello-client"))]
    {
        assert_eq!(program.strip_prefix("target/release/"), Path::new(built).file_name().unwrap().to_str());
    }
    assert_eq!((server[2].as_str(), client[1].as_str()), ("tee", "\"$(cat"));
    assert_eq!(client[2].trim_end_matches(")\""), server[3], "the file of the reference");
}

fn sections(manifest: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in manifest.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match sections.last_mut() {
            Some((_, lines)) if !line.starts_with('[') => lines.push(line),
            _ => sections.push((line, Vec::new())),
        }
    }
    sections
}

#[test]
fn manifest_on_the_page_fits_the_files_of_the_example() {
    let (page, own) = (read(PAGE), read("Cargo.toml"));
    let (_, shown) = page.split_once("`Cargo.toml`\n```toml\n").expect("the page must show a manifest");
    let shown = sections(shown.split_once("```").unwrap().0);
    let own = sections(&own);
    let titles: Vec<&str> = shown.iter().map(|(title, _)| *title).collect();
    assert_eq!(titles, ["[package]", "[[bin]]", "[[bin]]", "[dependencies]", "[build-dependencies]"]);
    let edition = read("../../Cargo.toml").lines().find(|line| line.starts_with("edition = ")).unwrap().to_owned();
    assert!(shown[0].1.contains(&edition.as_str()), "the workspace has {edition}");
    for (title, lines) in &shown[1..] {
        if *title == "[[bin]]" {
            assert!(own.iter().any(|known| known == &(*title, lines.clone())), "{lines:?} are not in Cargo.toml");
            continue;
        }
        let name = |line: &&str| line.split(['.', ' ']).next().unwrap().to_owned();
        let names: Vec<String> = lines.iter().map(name).collect();
        let known = own.iter().find(|(known, _)| known == title).unwrap();
        assert_eq!(names, known.1.iter().map(name).collect::<Vec<_>>(), "{title}");
        for (line, name) in lines.iter().zip(&names) {
            let path = line.split('"').nth(1).unwrap().strip_prefix("../corelane/").unwrap();
            let manifest = read(&format!("../../{path}/Cargo.toml"));
            assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name} is not at {path}");
        }
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn client_prints_the_echo_of_the_server() {
    let mut server = Server(Command::new(env!("CARGO_BIN_EXE_hello-server")).stdout(Stdio::piped()).spawn().unwrap());
    let mut reference = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut reference).unwrap();
    assert!(reference.starts_with("IOR:"), "{reference}");
    let client = Command::new(env!("CARGO_BIN_EXE_hello-client")).arg(reference.trim()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&client.stdout), "Hello, world!\n");
    assert_eq!(String::from_utf8_lossy(&client.stderr), "");
    assert!(client.status.success());
    assert!(resident(server.0.id()) < 5 << 10, "the server has {} KiB resident", resident(server.0.id()));
}

fn resident(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn client_without_a_server_prints_the_reason() {
    let client = |address: &str| Command::new(env!("CARGO_BIN_EXE_hello-client")).arg(address).output().unwrap();
    let nobody = client("corbaloc::127.0.0.1:1/nobody");
    assert!(!nobody.status.success());
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(said.contains("TRANSIENT") && said.contains("127.0.0.1:1"), "{said}");
}
