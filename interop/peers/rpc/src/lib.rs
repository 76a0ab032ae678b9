//! The shared code of the programs: the line protocol of interop/peers/omniorb/bench.cc, and the
//! measurement of calls.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// Any failure of a program.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Maximum size in octets of an argument.
pub const MAX_OCTETS: usize = 64 << 20;

/// The calls that a program measures. An implementation that blocks returns futures that are ready.
#[allow(async_fn_in_trait)]
pub trait Calls {
    /// Sends an octet and returns the octet of the reply.
    async fn octet(&mut self, value: u8) -> Result<u8, Failure>;

    /// Sends octets, and returns the length and the last octet of the reply. `whole` also compares
    /// all octets.
    async fn octets(&mut self, sent: &[u8], whole: bool) -> Result<(usize, Option<u8>), Failure>;
}

/// Returns an error if `whole` is set and the reply differs. Otherwise returns the reply's length
/// and its last octet.
pub fn checked(sent: &[u8], reply: &[u8], whole: bool) -> Result<(usize, Option<u8>), Failure> {
    if whole && reply != sent {
        return Err("the reply is not what was sent".into());
    }
    Ok((reply.len(), reply.last().copied()))
}

/// Prints that a server can be called at `reference`, and waits for the end of the input.
pub fn serve_until_end(reference: &str) -> Result<(), Failure> {
    serve_and_hear(reference, |_| {})
}

/// Prints that a server can be called at `reference`, and calls `hear` with each line of the input
/// until its end.
pub fn serve_and_hear(reference: &str, hear: impl Fn(&str)) -> Result<(), Failure> {
    say(&format!("ready {reference}"))?;
    for line in std::io::stdin().lock().lines() {
        hear(&line?);
    }
    Ok(())
}

/// Measures calls as the lines of the standard input say, until its end.
pub async fn measure_as_told(calls: &mut impl Calls) -> Result<(), Failure> {
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = match measure(calls, &line).await {
            Ok(times) => times,
            Err(error) => format!("error {}", error.to_string().replace('\n', " ")),
        };
        say(&answer)?;
    }
    Ok(())
}

async fn measure(calls: &mut impl Calls, line: &str) -> Result<String, Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["run", operation, warm_up, count] = words[..] else {
        return Err(format!("not understood: {line}").into());
    };
    let (warm_up, count): (usize, usize) = (warm_up.parse()?, count.parse()?);
    let octets = match operation.strip_prefix("octets") {
        Some(length) => Some(pattern(length.parse()?)?),
        None if operation == "octet" => None,
        None => return Err(format!("there is no operation {operation}").into()),
    };
    if let Some(octets) = &octets {
        calls.octets(octets, true).await?;
    }
    let mut times = Vec::with_capacity(count);
    let mut whole = Duration::ZERO;
    for (count, is_timed) in [(warm_up, false), (count, true)] {
        let began = Instant::now();
        let mut last = began;
        for _ in 0..count {
            match &octets {
                Some(sent) if calls.octets(sent, false).await? == (sent.len(), sent.last().copied()) => {}
                None if calls.octet(7).await? == 7 => {}
                _ => return Err("the reply is not what was sent".into()),
            }
            if is_timed {
                let now = Instant::now();
                times.push(now - last);
                last = now;
            }
        }
        whole = last - began;
    }
    let mut answer = format!("times {}", whole.as_nanos());
    for time in times {
        answer.push_str(&format!(" {}", time.as_nanos()));
    }
    Ok(answer)
}

fn pattern(length: usize) -> Result<Vec<u8>, Failure> {
    if length > MAX_OCTETS {
        return Err("the argument is too long".into());
    }
    Ok((0..length).map(|index| index as u8).collect())
}

fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Returns the reference that the program's arguments name, or `None` for `--serve`.
pub fn reference() -> Result<Option<String>, Failure> {
    let mut words = std::env::args().skip(1);
    match (words.next(), words.next()) {
        (Some(word), None) if word == "--serve" => Ok(None),
        (Some(word), None) => Ok(Some(word)),
        _ => Err("usage: --serve | REFERENCE".into()),
    }
}
