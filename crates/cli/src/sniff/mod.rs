//! The command `corelane sniff`, which shows the GIOP messages in captured traffic.

mod show;
mod typed;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::{self, Child, Stdio};
use std::time::Duration;
use std::vec;

use clap::{ArgAction, ArgMatches, Command};
use corelane_idl::compile::CompileOptions;
use corelane_sniff::{SniffCounts, Sniffer, read_capture};

use self::show::MessagePrinter;
use self::typed::Signatures;
use crate::arguments::{self, ArgumentRefusal, flag, option, positional};
use crate::idl_types::compile;
use crate::text::excerpt;
use crate::{DONE, NOT_DONE};

pub(crate) const USAGE: &str = "\
usage: corelane sniff [--idl FILE [--idl-interface NAME]] [-I DIR]... [-D NAME[=VALUE]]... [--idl-4] [--port PORT]...
                      [--operation NAME]... [--slower SECONDS] [--json] FILE|--interface DEVICE

Shows the GIOP messages in captured TCP traffic, one a line: when, from where to where, the version, kind and request id, the
operation, the status of replies and their time after the request. FILE is pcap or pcapng, or - for the standard input, as in
`tcpdump -i lo -w - tcp | corelane sniff -`.

  --interface DEVICE
                    capture at this network interface, with dumpcap, instead of reading a file
  --idl FILE        show arguments, results and exceptions by the types of this file
  --idl-interface NAME
                    the interface, if several in the file have an operation of the same name
  -I, -D, --idl-4   as for `corelane idl`
  --port PORT       show connections from or to this TCP port; may be given several times
  --operation NAME  show requests of this operation and their replies; may be given several times
  --slower SECONDS  show replies that came later than this after their requests
  --json            print one JSON object a line

Octets that the capture lacks are reported on a line of their own. The messages that contain them are left out.

Exit status: 0 shown, 1 the file was not read to its end, 2 wrong usage.
";

#[derive(Debug)]
enum CaptureInput {
    File(OsString),
    Device(OsString),
}

#[derive(Debug)]
struct SniffArguments {
    source: CaptureInput,
    idl: Option<PathBuf>,
    options: CompileOptions,
    interface: Option<String>,
    ports: Vec<u16>,
    operations: Vec<String>,
    slower: Option<Duration>,
    is_json: bool,
}

pub(crate) fn command() -> Command {
    let many = [("port", "PORT"), ("operation", "NAME")];
    let command = arguments::command("sniff", USAGE)
        .args(arguments::idl_options())
        .args(many.map(|(name, value)| option(name, value).action(ArgAction::Append)))
        .args([option("idl", "FILE"), option("idl-interface", "NAME"), option("slower", "SECONDS")])
        .args([option("interface", "DEVICE"), flag("json")])
        .arg(positional("FILE"));
    arguments::with_descriptions(command, USAGE)
}

impl SniffArguments {
    fn of(parsed: &ArgMatches) -> Result<SniffArguments, String> {
        let port = |text: String| {
            let port = text.parse().ok().filter(|port| *port > 0);
            port.ok_or_else(|| format!("`{}` is not a port", excerpt(&text)))
        };
        let word = |id: &str| parsed.get_one::<OsString>(id).cloned();
        let source = match (word("FILE"), word("interface")) {
            (Some(file), None) => CaptureInput::File(file),
            (None, Some(device)) => CaptureInput::Device(device),
            (None, None) => return Err("no file is given".to_owned()),
            (Some(_), Some(_)) => return Err("`--interface` takes no file".to_owned()),
        };
        let arguments = SniffArguments {
            source,
            idl: parsed.get_one::<OsString>("idl").map(PathBuf::from),
            options: arguments::idl_options_of(parsed),
            interface: arguments::text(parsed, "idl-interface"),
            ports: arguments::texts(parsed, "port").into_iter().map(port).collect::<Result<_, _>>()?,
            operations: arguments::texts(parsed, "operation"),
            slower: arguments::text(parsed, "slower")
                .map(|text| arguments::seconds(&text, 0.0, "the value of `--slower` is a number of seconds"))
                .transpose()?,
            is_json: parsed.get_flag("json"),
        };
        if arguments.interface.is_some() && arguments.idl.is_none() {
            return Err("`--idl-interface` needs `--idl`".to_owned());
        }
        Ok(arguments)
    }
}

pub(crate) fn run(words: vec::IntoIter<OsString>, out: &mut dyn Write) -> u8 {
    let parsed = arguments::parse(command(), words).map_err(ArgumentRefusal::reason);
    let arguments = match parsed.and_then(|parsed| SniffArguments::of(&parsed).map_err(Some)) {
        Ok(arguments) => arguments,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    let mut out = BufWriter::new(out);
    let outcome = sniff(&arguments, &mut out);
    let status = if outcome.is_ok() { DONE } else { NOT_DONE };
    let _ = match outcome {
        Err(error) => show::error(&error, arguments.is_json, &mut out),
        Ok(()) => Ok(()),
    };
    let _ = out.flush();
    status
}

fn sniff(arguments: &SniffArguments, out: &mut dyn Write) -> Result<(), String> {
    let compilation = arguments.idl.as_ref().map(|file| compile(file, &arguments.options)).transpose()?;
    let signatures = compilation.as_ref().map(|compiled| Signatures::new(compiled, arguments.interface.clone()));
    let mut dumpcap = None;
    let (name, source): (String, Box<dyn Read + Send>) = match &arguments.source {
        CaptureInput::File(file) if file == "-" => ("the standard input".to_owned(), Box::new(io::stdin())),
        CaptureInput::File(file) => {
            let name = format!("`{}`", excerpt(&file.to_string_lossy()));
            let file = File::open(file).map_err(|error| format!("{name} cannot be opened: {error}"))?;
            (name, Box::new(file))
        }
        CaptureInput::Device(device) => {
            let started = dumpcap.insert(start_dumpcap(device, &arguments.ports)?);
            let output = started.stdout.take().ok_or("dumpcap has no output")?;
            ("dumpcap".to_owned(), Box::new(output))
        }
    };
    let outcome = show_all(arguments, signatures, (&name, source), out);
    match dumpcap {
        None => outcome,
        Some(mut dumpcap) => {
            if outcome.is_err() {
                // Ignores an error: dumpcap may have ended.
                let _ = dumpcap.kill();
            }
            let status = dumpcap.wait().map_err(|error| format!("dumpcap: {error}"))?;
            outcome.and_then(|()| if status.success() { Ok(()) } else { Err(format!("dumpcap failed ({status})")) })
        }
    }
}

fn start_dumpcap(device: &OsString, ports: &[u16]) -> Result<Child, String> {
    let filters: Vec<String> = ports.iter().map(|port| format!("tcp port {port}")).collect();
    let filter = if filters.is_empty() { "tcp".to_owned() } else { filters.join(" or ") };
    let mut command = process::Command::new("dumpcap");
    command.arg("-q").arg("-i").arg(device).args(["-f", &filter, "-w", "-"]);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    started.map_err(|error| format!("dumpcap cannot be started: {error} (it comes with Wireshark)"))
}

fn show_all(
    arguments: &SniffArguments,
    signatures: Option<Signatures<'_>>,
    (name, source): (&str, Box<dyn Read + Send>),
    out: &mut dyn Write,
) -> Result<(), String> {
    let mut sniffer = Sniffer::new(arguments.ports.clone());
    let mut show = MessagePrinter::new(arguments, signatures, out);
    let mut last = 0;
    let read = read_capture(source, &mut |packet| {
        last = packet.time_ns;
        sniffer.process_packet(&packet, &mut |seen| show.seen(&seen));
        // The reader of a pipe gets each line at once, because the output is flushed here.
        show.written()
    });
    sniffer.finish(last, &mut |seen| show.seen(&seen));
    show.written()?;
    left_out(sniffer.counts(), &mut show)?;
    read.map_err(|error| format!("{name}: {error}"))
}

fn left_out(counts: SniffCounts, show: &mut MessagePrinter<'_, '_>) -> Result<(), String> {
    let SniffCounts {
        ip_fragments,
        packets_of_unsupported_link_layers: unsupported_link_layers,
        discarded_connections,
        ..
    } = counts;
    for (count, what) in [
        (ip_fragments, "fragments of IP packets were left out"),
        (unsupported_link_layers, "packets have a link layer that is not known here"),
        (discarded_connections, "connections were forgotten: there were too many"),
    ] {
        if count > 0 {
            show.note(count, what)?;
        }
    }
    Ok(())
}
