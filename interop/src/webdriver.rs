//! A client of WebDriver (W3C): a Chromium without a window, which chromedriver starts.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::process;

/// Maximum time of a command: a start of Chromium is slow when the cores are busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum size in bytes of an answer.
const MAX_ANSWER: usize = 16 << 20;

/// The options of Chromium. It runs without a sandbox, because tests may run as root. The other
/// options keep it from the network and from questions to the user.
const OPTIONS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// A browser with one page, which ends when the value is dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    /// Kept open, because chromedriver may still write to it.
    _output: BufReader<ChildStdout>,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser. Its data are in the folder `profile`, which is emptied first.
    ///
    /// # Errors
    ///
    /// chromedriver or Chromium (Debian: chromium-driver, chromium) is missing or does not start.
    pub fn start(profile: &Path) -> Result<Self, String> {
        let _ = fs::remove_dir_all(profile);
        fs::create_dir_all(profile).map_err(|error| format!("{}: {error}", profile.display()))?;
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut driver = process::begin(&mut command)?;
        let output = driver.stdout.take().ok_or("chromedriver has no output")?;
        let mut browser = Self { driver, _output: BufReader::new(output), port: 0, session: String::new() };
        browser.port = port(&mut browser._output)?;
        let data = format!("--user-data-dir={}", profile.display());
        let options: Vec<&str> = OPTIONS.iter().copied().chain([data.as_str()]).collect();
        let wanted = json!({
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": options },
        });
        let answer = browser.ask("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }))?;
        browser.session = answer["sessionId"].as_str().ok_or("chromedriver made no session")?.to_owned();
        Ok(browser)
    }

    /// Opens a page, and returns when it is loaded.
    ///
    /// # Errors
    ///
    /// The page cannot be loaded.
    pub fn open(&self, url: &str) -> Result<(), String> {
        self.command("url", &json!({ "url": url })).map(drop)
    }

    /// Runs the body of a function in the page, and returns its result.
    ///
    /// # Errors
    ///
    /// The script throws an exception.
    pub fn run(&self, script: &str) -> Result<Json, String> {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Returns what the page has written to the console since the last call, including exceptions,
    /// failed requests, and breaches of its security policy.
    ///
    /// # Errors
    ///
    /// The browser has ended.
    pub fn console(&self) -> Result<Vec<String>, String> {
        let entries = self.command("se/log", &json!({ "type": "browser" }))?;
        let entries = entries.as_array().ok_or("chromedriver returned no list")?;
        Ok(entries.iter().map(|entry| format!("{} {}", entry["level"], entry["message"])).collect())
    }

    fn command(&self, name: &str, arguments: &Json) -> Result<Json, String> {
        self.ask("POST", &format!("/session/{}/{name}", self.session), arguments)
    }

    fn ask(&self, method: &str, path: &str, arguments: &Json) -> Result<Json, String> {
        let answer = exchange(self.port, method, path, &arguments.to_string());
        let (status, body) = answer.map_err(|error| format!("chromedriver, {path}: {error}"))?;
        let mut body: Json = serde_json::from_slice(&body).map_err(|error| format!("chromedriver, {path}: {error}"))?;
        let value = body["value"].take();
        if status == 200 { Ok(value) } else { Err(format!("{path}: {} {}", value["error"], value["message"])) }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.ask("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Returns the port that chromedriver has chosen.
fn port(output: &mut impl BufRead) -> Result<u16, String> {
    let mut said = String::new();
    loop {
        let begins = said.len();
        match output.read_line(&mut said) {
            Ok(0) | Err(_) => return Err(format!("chromedriver does not start: {said}")),
            Ok(_) => {}
        }
        let number =
            said[begins..].trim_end().strip_suffix('.').and_then(|line| line.rsplit_once("successfully on port "));
        if let Some(port) = number.and_then(|(_, port)| port.parse().ok()) {
            return Ok(port);
        }
    }
}

/// Makes a request of HTTP, and returns the status and the body of the answer.
fn exchange(port: u16, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    read_answer(&mut BufReader::new(stream))
}

fn read_answer(stream: &mut impl BufRead) -> Result<(u16, Vec<u8>), String> {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok::<_, String>(line.trim_end().to_ascii_lowercase())
    };
    let first = line()?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| format!("`{first}` is no answer of HTTP"))?;
    let mut length = None;
    loop {
        let header = line()?;
        if header.is_empty() {
            break;
        }
        if let Some(text) = header.strip_prefix("content-length:") {
            length = text.trim().parse().ok();
        }
    }
    let length: usize = length.filter(|length| *length <= MAX_ANSWER).ok_or("the answer has no permitted length")?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).map_err(|error| error.to_string())?;
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_answers_are_read() {
        let said = "Starting ChromeDriver 156 on port 0\nChromeDriver was started successfully on port 43273.\n";
        assert_eq!(port(&mut said.as_bytes()), Ok(43273));
        assert!(port(&mut &said.as_bytes()[..40]).unwrap_err().contains("Starting"));
        let answer = "HTTP/1.1 404 Not Found\r\nA: b\r\ncontent-Length: 2\r\n\r\n{}";
        assert_eq!(read_answer(&mut answer.as_bytes()), Ok((404, b"{}".to_vec())));
        for wrong in ["", "x", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"] {
            assert!(read_answer(&mut wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }
}
