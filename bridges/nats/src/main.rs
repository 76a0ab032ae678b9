//! A bridge between an event channel and NATS JetStream.

mod nats;

use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use corelane::Orb;
use corelane_services::events::backbone::{Bridge, BridgeCounts, BridgeStatus, check_backbone};
use corelane_services::events::corelane_events::{DurableChannelRef, FederatedChannelRef};
use corelane_sys::clock::Monotonic;
use corelane_sys::signal::TerminationRequests;
use corelane_sys::{poll, signal};

use self::nats::Server;

const USAGE: &str = "\
usage: corelane-nats [--server URL] [--stream NAME] [--max-bytes N] [--from N] --name NAME CHANNEL
       corelane-nats --check [--server URL]

Publishes the events of a durable event channel to a stream of NATS JetStream, and delivers the events that other
bridges have published to the channel, until SIGTERM or SIGINT. If the channel is not durable, only delivers. Prints its
state after each change, and its counts at the end. CHANNEL is the name of a channel of a server at the default address,
or a corbaloc URL with the name as its key.

  --name NAME      the name of this bridge, by which it resumes: 1 to 64 letters, digits and characters -_; each bridge of
                   a stream needs a name of its own, and keeps it
  --server URL     the server of NATS (nats://127.0.0.1:4222); USER:PASSWORD@ or TOKEN@ may precede its host,
                   but `ps` shows them; tls:// encrypts
  --stream NAME    the stream (corelane), which is also the subject of its messages; created if it is not there
  --max-bytes N    the size of a created stream, beyond which the server deletes the oldest messages (1073741824)
  --from N         the number of the message with which a new name begins (1)
  --check          check that the server does what a bridge needs, with a stream that is deleted afterwards

Exit status: 0 done, 1 not done, 2 wrong usage.
";

/// Interval at which the program reads the state of the bridge, and prints a changed state.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Arguments {
    is_check: bool,
    server: String,
    stream: String,
    max_bytes: i64,
    from: u64,
    name: String,
    channel: String,
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        is_check: false,
        server: "nats://127.0.0.1:4222".to_owned(),
        stream: "corelane".to_owned(),
        max_bytes: 1 << 30,
        from: 1,
        name: String::new(),
        channel: String::new(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("`{word}` needs a value"));
        let number = |value: String| value.parse().ok().filter(|number| *number > 0);
        match word.as_str() {
            "--check" => arguments.is_check = true,
            "--server" => arguments.server = value()?,
            "--stream" => arguments.stream = value()?,
            "--max-bytes" => arguments.max_bytes = number(value()?).ok_or("`--max-bytes` needs a number")?,
            "--from" => {
                let first = number(value()?).ok_or("`--from` needs a number from 1")?;
                arguments.from = first.unsigned_abs();
            }
            "--name" => arguments.name = value()?,
            option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
            _ if !arguments.channel.is_empty() => return Err("there is more than one channel".to_owned()),
            channel => channel.clone_into(&mut arguments.channel),
        }
    }
    let is_word = |word: &str| {
        let is_permitted = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=64).contains(&word.len()) && word.chars().all(is_permitted)
    };
    if !is_word(&arguments.stream) {
        return Err("the name of a stream has 1 to 64 letters, digits and characters -_".to_owned());
    }
    match (arguments.is_check, arguments.channel.is_empty()) {
        (true, true) => Ok(arguments),
        (true, false) => Err("`--check` needs no channel".to_owned()),
        (false, true) => Err("there is no channel".to_owned()),
        (false, false) if !is_word(&arguments.name) => {
            Err("`--name` needs a name of 1 to 64 letters, digits and characters -_".to_owned())
        }
        (false, false) => Ok(arguments),
    }
}

fn message(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--help"] {
        print(USAGE);
        return ExitCode::SUCCESS;
    }
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprint!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = if arguments.is_check { check(&arguments) } else { run(&arguments) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a text. An error is ignored, because the reader may have closed the pipe.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Runs the conformance suite with a temporary stream, so that it does not touch the stream of a
/// bridge.
fn check(arguments: &Arguments) -> Result<(), String> {
    let stream = format!("corelane-check-{}-{}", std::process::id(), Monotonic::now().as_nanos());
    let server = Server::new(&arguments.server, &stream, arguments.max_bytes.min(64 << 20))?;
    let checked = check_backbone(|| server.connect());
    let deleted = server.delete_stream();
    checked.and(deleted)?;
    print("the server does what a bridge needs\n");
    Ok(())
}

/// Returns the URLs of the channel for CORBA's Event Service and for TAO's.
fn urls(word: &str) -> [String; 2] {
    let cos = match word.contains(':') {
        true => word.strip_suffix(".rtec").unwrap_or(word).to_owned(),
        false => format!("corbaloc::1.2@127.0.0.1:11169/{word}"),
    };
    let rtec = format!("{cos}.rtec");
    [cos, rtec]
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let termination = signal::termination().map_err(message)?;
    let orb = Orb::new().map_err(message)?;
    let [cos, rtec] = urls(&arguments.channel);
    if !cos.starts_with("corbaloc:") {
        return Err("the channel is neither a name nor a corbaloc URL".to_owned());
    }
    // The channel may not exist yet, so the references are narrowed without a call.
    let object =
        |url: &str| orb.string_to_object(url).map_err(message)?.ok_or_else(|| "the reference is nil".to_owned());
    let durable = DurableChannelRef::unchecked_narrow(&object(&cos)?);
    let channel = FederatedChannelRef::unchecked_narrow(&object(&rtec)?);
    let server = Server::new(&arguments.server, &arguments.stream, arguments.max_bytes)?;
    let Some(is_durable) = ask_if_durable(&durable, termination)? else { return Ok(()) };
    if !is_durable {
        print("the channel is not durable: its events are not published\n");
    }
    let bridge = Bridge::builder(&arguments.name).first_message(arguments.from);
    let bridge = bridge.start(&channel, is_durable.then_some(&durable), move || server.connect())?;
    let mut shown = (false, None);
    loop {
        let BridgeStatus { is_connected, problem, .. } = bridge.status();
        if shown != (is_connected, problem.clone()) {
            let state = if is_connected { "connected" } else { "not connected" };
            let reason = problem.as_deref().map(|problem| format!(": {}", one_line(problem))).unwrap_or_default();
            print(&format!("{state}{reason}\n"));
            shown = (is_connected, problem);
        }
        if ends(termination, LOOK_INTERVAL)? {
            break;
        }
    }
    bridge.stop();
    print(&counts_line(&bridge.status().counts));
    orb.shutdown(true).map_err(message)
}

fn counts_line(counts: &BridgeCounts) -> String {
    let BridgeCounts { published, loops_stopped, ttl_expired, dropped_too_large, deleted_events, .. } = counts;
    let BridgeCounts { delivered, duplicates, refused, unreadable, deleted_messages, .. } = counts;
    format!(
        "published {published}, returned {loops_stopped}, ttl ended {ttl_expired}, too large {dropped_too_large}, \
         deleted events {deleted_events}, delivered {delivered}, duplicates {duplicates}, refused {refused}, \
         unreadable {unreadable}, deleted messages {deleted_messages}\n"
    )
}

/// Asks the channel until it answers, and returns true if it is durable. Returns `None` if the
/// program ends before the channel answers.
fn ask_if_durable(channel: &DurableChannelRef, termination: &TerminationRequests) -> Result<Option<bool>, String> {
    let mut is_told = false;
    loop {
        match channel.as_object().is_a(DurableChannelRef::REPOSITORY_ID) {
            Ok(is_durable) => return Ok(Some(is_durable)),
            Err(exception) if !is_told => print(&format!("not connected: {}\n", one_line(&message(exception)))),
            Err(_) => {}
        }
        is_told = true;
        if ends(termination, Duration::from_millis(500))? {
            return Ok(None);
        }
    }
}

/// Waits for a time, and returns true if a signal ends the program.
fn ends(termination: &TerminationRequests, time: Duration) -> Result<bool, String> {
    poll::wait_readable_any([termination.as_fd()], Some(Monotonic::now() + time)).map_err(message)?;
    Ok(termination.is_requested())
}

/// Returns a text of another program without control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Arguments, String> {
        parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_parsed_and_wrong_ones_named() {
        let arguments = parsed("--name north --from 7 --stream s --max-bytes 9 --server nats://a flight").unwrap();
        assert_eq!((arguments.name.as_str(), arguments.from, arguments.max_bytes), ("north", 7, 9));
        assert_eq!((arguments.stream.as_str(), arguments.channel.as_str()), ("s", "flight"));
        assert!(parsed("--check --server nats://a").unwrap().is_check);
        for (words, why) in [
            ("flight", "`--name` needs"),
            ("--name north", "no channel"),
            ("--name a.b flight", "`--name` needs"),
            ("--name north flight flight", "more than one"),
            ("--name", "`--name` needs a value"),
            ("--from 0 --name north flight", "`--from` needs"),
            ("--check flight", "`--check` needs no channel"),
            ("--speed 9 flight", "there is no option `--speed`"),
            ("--stream a.b --name north flight", "stream"),
        ] {
            let refusal = parsed(words).unwrap_err();
            assert!(refusal.contains(why), "{words}: {refusal}");
        }
    }

    #[test]
    fn urls_of_a_channel_are_those_of_both_services() {
        let flight = "corbaloc::1.2@127.0.0.1:11169/flight".to_owned();
        let both = [flight.clone(), format!("{flight}.rtec")];
        assert_eq!([urls("flight"), urls(&flight), urls(&both[1])], [both.clone(), both.clone(), both]);
    }
}
