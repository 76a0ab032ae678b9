//! The command `corelane rio`, which shows the live state of real-time I/O on an interface, and
//! looks for remains of killed processes.

use std::ffi::OsString;
use std::fs;
use std::io::Write;

use clap::Command;
use corelane_rio::admission::ProcessingCost;
use corelane_rio::examination::{examine, steering_refusal};
use corelane_rio::feature_level::FeatureLevel;
use corelane_rio::status::{StatusFields, StatusReports, TransportReport, read_reports, value_of};
use corelane_rio::{RioConfig, restore_interface};
use serde_json::{Value as Json, json};

use crate::arguments::{self, flag, positional};
use crate::text::{excerpt, json_text, printable};
use crate::{DONE, NOT_DONE};

pub(crate) const USAGE: &str = "\
usage: corelane rio status IF [--json]
       corelane rio clean IF [--json]
       corelane rio calibrate [--json]

Shows the live state of real-time I/O on the network interface IF: the processes that use it, their streams, threads, queues,
queued and missed frames, and budgets. Programs of other users are seen by root only.

  status            show the state
  clean             restore the settings that a killed process has left on IF
  calibrate         measure the processor time for the packets of a stream, for the admission of streams

  --json            print one JSON object

Exit status: 0 done, 1 not done, 2 wrong usage.
";

pub(crate) fn command() -> Command {
    let of = |name| arguments::command(name, USAGE).args([flag("json"), positional("IF")]);
    let calibrate = arguments::command("calibrate", USAGE).args([flag("json")]);
    let command = arguments::command("rio", USAGE).subcommands([of("status"), of("clean"), calibrate]);
    arguments::with_descriptions(command, USAGE)
}

pub(crate) fn run(words: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let (verb, parsed) = match arguments::parse_subcommand("rio", command(), words) {
        Ok(found) => found,
        Err(refusal) => return arguments::print_refusal(refusal.subcommand_reason(), USAGE, out),
    };
    let is_json = parsed.get_flag("json");
    if verb == "calibrate" {
        return finish(calibrate(is_json), is_json, out);
    }
    let Some(name) = arguments::text(&parsed, "IF") else {
        return arguments::print_refusal(Some("no interface is given".to_owned()), USAGE, out);
    };
    let result = if corelane_sys::interface::index(&name).is_err() {
        Err(format!("there is no interface {}", excerpt(&name)))
    } else {
        read_reports().map_err(|error| format!("the transports of this machine cannot be read: {error}"))
    };
    let shown = result.and_then(|found| match verb.as_str() {
        "clean" => clean(&name, &users(found, &name), is_json),
        _ => Ok(show(&name, &users(found, &name), is_json)),
    });
    finish(shown, is_json, out)
}

fn finish(result: Result<String, String>, is_json: bool, out: &mut dyn Write) -> u8 {
    let (status, text) = match result {
        Ok(text) => (DONE, text),
        Err(error) if is_json => (NOT_DONE, json_text(&json!({ "schema": 1, "error": error }))),
        Err(error) => (NOT_DONE, format!("error: {error}\n")),
    };
    let _ = out.write_all(text.as_bytes());
    status
}

fn calibrate(is_json: bool) -> Result<String, String> {
    let cost = ProcessingCost::measure().map_err(|error| format!("the cost cannot be measured: {error}"))?;
    let ProcessingCost { per_period, per_packet, per_kibibyte } = cost;
    if is_json {
        let report = json!({
            "schema": 1,
            "per_period_ns": per_period,
            "per_packet_ns": per_packet,
            "per_kibibyte_ns": per_kibibyte,
        });
        return Ok(json_text(&report));
    }
    Ok(format!(
        "Processor time for the packets of a stream on this machine, without a margin:\n  \
         {per_period:>8} ns for each period\n  {per_packet:>8} ns for each packet\n  {per_kibibyte:>8} ns for each KiB\n"
    ))
}

/// Returns the transports on the interface, and transports without an interface, because their
/// connections can use every interface.
fn users(mut found: StatusReports, name: &str) -> StatusReports {
    found.reports.retain(|report| report.field("interface").is_none_or(|found| found == name));
    found
}

fn show(name: &str, found: &StatusReports, is_json: bool) -> String {
    if is_json {
        let transports: Vec<Json> = found.reports.iter().map(to_json).collect();
        let unread = found.silent_sockets;
        return json_text(&json!({ "schema": 1, "interface": name, "transports": transports, "unread": unread }));
    }
    let mut text: String = found.reports.iter().map(to_text).collect();
    if found.reports.is_empty() {
        text += &format!("No process that this user may see uses real-time I/O on {name}.\n");
    }
    text + &unread_to_text(found.silent_sockets)
}

fn unread_to_text(count: usize) -> String {
    if count == 0 {
        return String::new();
    }
    format!("{count} sockets with the name of real-time I/O gave no report in time.\n")
}

fn to_json(report: &TransportReport) -> Json {
    let mut shown = fields_to_json(&report.transport_fields);
    shown["process"] = report.process.into();
    shown["user"] = report.user.into();
    shown["program"] = report.process.map(program).into();
    shown["streams"] = report.stream_fields.iter().map(fields_to_json).collect();
    shown
}

fn fields_to_json(fields: &StatusFields) -> Json {
    let value = |text: &str| text.parse::<u64>().map_or_else(|_| text.into(), Json::from);
    let is_name = |name: &str| name == "interface";
    let fields = fields
        .iter()
        .map(|(name, text)| (name.clone(), if is_name(name) { text.as_str().into() } else { value(text) }));
    Json::Object(fields.collect())
}

fn program(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim_end().to_owned()
}

fn to_text(report: &TransportReport) -> String {
    let field = |name| printable(report.field(name).unwrap_or("?"));
    let place = report.field("interface").map_or_else(|| "any interface".to_owned(), printable);
    let user = report.user;
    let process = match report.process {
        Some(process) => format!("process {process} ({}, user {user})", printable(&program(process))),
        None => format!("process of another PID namespace (user {user})"),
    };
    let mut text = format!("{process}: {} on {place}\n", field("level"));
    text += &format!("  not higher, because {}\n", field("limit"));
    if report.field("priorities_lack").is_some() {
        text += &format!("  kernel priorities: {}\n", field("priorities_lack"));
    }
    if report.field("journal").is_some() {
        text += &format!("  journal: {}\n", field("journal"));
    }
    if report.field("best_effort_frames_queued").is_some() {
        text += &format!(
            "  best effort: {} frames in the receive context, {} queued, {} dropped\n",
            field("best_effort_frames_in_receive_context"),
            field("best_effort_frames_queued"),
            field("best_effort_frames_dropped")
        );
    }
    if report.stream_fields.is_empty() {
        text += "  no streams\n";
    }
    report.stream_fields.iter().for_each(|stream| text += &stream_to_text(stream));
    text
}

fn stream_to_text(stream: &StatusFields) -> String {
    let has = |name| value_of(stream, name).is_some();
    let field = |name| printable(value_of(stream, name).unwrap_or("?"));
    let priority =
        if has("native_priority") { format!(", priority {}", field("native_priority")) } else { String::new() };
    let mut text = format!(
        "  stream {} ({}): {}{priority}, {} of {} connections, {} refused\n",
        field("number"),
        field("side"),
        field("class"),
        field("connections"),
        field("max_connections"),
        field("refused_connections"),
    );
    if has("budget_bytes") {
        text += &format!(
            "    budget   {} of {} bytes used in this period of {} ns, {} received in all\n",
            field("budget_used_bytes"),
            field("budget_bytes"),
            field("period_ns"),
            field("received_bytes"),
        );
        text +=
            &format!("    waiting  {} connections, {} times in all\n", field("waiting_connections"), field("waits"));
        text += &format!("    thread   {}\n", field("period_thread"));
    }
    if has("budget_packets") {
        text += &format!(
            "    budget   {} of {} packets used in a period of {} ns, {} at most, {} processed in all\n",
            field("budget_used_packets"),
            field("budget_packets"),
            field("period_ns"),
            field("max_period_packets"),
            field("processed_packets"),
        );
        text += &format!(
            "    waiting  {} times for the next period, {} frames dropped by a full ring, {} lost\n",
            field("waits"),
            field("ring_full_frames"),
            field("lost_frames"),
        );
        text += &format!("    thread   {}\n", field("period_thread"));
    }
    if has("cap_packets") {
        text += &format!(
            "    cap      {} packets in each period of {} ns in the receive context\n",
            field("cap_packets"),
            field("period_ns"),
        );
    }
    if has("frames_queued") {
        text += &format!(
            "    frames   {} queued, {} missed, {} in the receive context\n",
            field("frames_queued"),
            field("frames_missed"),
            field("frames_in_context"),
        );
        // Without a kernel thread, the frames wait in rings, and the transport has no queue.
        if has("kernel_thread") {
            text += &format!("    queue    {} frames, thread {}\n", field("queue_frames"), field("kernel_thread"));
        }
    }
    if has("lack") {
        text += &format!("    lacks    {}\n", field("lack"));
    }
    if has("refusal") {
        text += &format!("    refusal  {}\n", field("refusal"));
    }
    text
}

/// Restores the settings that a killed process has left on the interface, and returns the output of
/// `corelane rio clean`. Settings are not restored if a trusted report names a journal, because the
/// process that owns them is alive. Reports of untrusted users do not replace the examination of
/// the interface.
///
/// # Errors
/// If the settings cannot be restored.
fn clean(name: &str, found: &StatusReports, is_json: bool) -> Result<String, String> {
    let steers = |report: &TransportReport| report.field("level") == Some(&FeatureLevel::StreamSteering.to_string());
    let users = || found.reports.iter().filter(|report| report.is_trusted() && report.field("interface").is_some());
    let has_owner = users().any(|report| report.field("journal").is_some());
    // A process whose XDP program is on the interface reports most about the interface, so its
    // report is preferred.
    let user = users().max_by_key(|report| steers(report));
    let unread = found.silent_sockets;
    let found = match (user, steering_refusal()) {
        (Some(report), _) => {
            let process = match report.process {
                Some(process) => format!("process {process}"),
                None => "a process of another PID namespace".to_owned(),
            };
            let manner = if steers(report) { ", and its program stays" } else { " without a program" };
            format!("{process} uses {name}{manner}")
        }
        (None, Some(refusal)) => format!("{name} was not examined: {refusal}"),
        (None, None) => {
            let examination = examine(name);
            let hook = examination.findings.iter().find(|one| one.feature == "hook").map(|one| one.found.clone());
            match hook {
                Some(reason) if examination.level != FeatureLevel::StreamSteering => reason,
                Some(_) => format!("{name} has no program"),
                None => format!("{name} accepts no program, because its link is down"),
            }
        }
    };
    let restore = || restore_interface(name, &RioConfig::default().journal_folder);
    let removed = if has_owner { Vec::new() } else { restore().map_err(|reason| format!("not restored: {reason}"))? };
    if is_json {
        let report = json!({ "schema": 1, "interface": name, "removed": removed, "found": found, "unread": unread });
        return Ok(json_text(&report));
    }
    let text = match removed.as_slice() {
        [] if has_owner => "Nothing is removed: a process has the kernel priorities of the interface.\n".to_owned(),
        [] => "Nothing is left to remove. The kernel removes programs, tables and threads with their process.\n"
            .to_owned(),
        removed => format!("Removed what a killed process had left: {}.\n", removed.join(", ")),
    };
    Ok(format!("{text}Found: {found}.\n{}", unread_to_text(unread)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_in_packets_is_shown_with_its_thread() {
        let fields = [
            ("number", "1"),
            ("side", "server"),
            ("class", "guaranteed packets"),
            ("connections", "2"),
            ("max_connections", "64"),
            ("refused_connections", "0"),
            ("period_ns", "10000000"),
            ("budget_packets", "45"),
            ("budget_used_packets", "9"),
            ("max_period_packets", "44"),
            ("processed_packets", "18230"),
            ("waits", "204"),
            ("ring_full_frames", "3"),
            ("lost_frames", "1"),
            ("period_thread", "rio/s1"),
            ("frames_queued", "18233"),
            ("frames_missed", "0"),
            ("frames_in_context", "0"),
        ];
        let fields: StatusFields =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let expected = "  stream 1 (server): guaranteed packets, 2 of 64 connections, 0 refused\n    budget   9 of 45 packets \
                        used in a period of 10000000 ns, 44 at most, 18230 processed in all\n    waiting  204 times for the \
                        next period, 3 frames dropped by a full ring, 1 lost\n    thread   rio/s1\n    frames   18233 \
                        queued, 0 missed, 0 in the receive context\n";
        assert_eq!(stream_to_text(&fields), expected);
    }

    #[test]
    fn stream_of_low_latency_is_shown_with_its_cap() {
        let fields = [
            ("number", "2"),
            ("side", "server"),
            ("class", "low latency"),
            ("native_priority", "30"),
            ("connections", "1"),
            ("max_connections", "64"),
            ("refused_connections", "0"),
            ("period_ns", "10000000"),
            ("cap_packets", "20"),
            ("frames_queued", "7"),
            ("frames_missed", "0"),
            ("frames_in_context", "18226"),
            ("queue_frames", "512"),
            ("kernel_thread", "cpumap/0/map:9"),
        ];
        let fields: StatusFields =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let expected = "  stream 2 (server): low latency, priority 30, 1 of 64 connections, 0 refused\n    cap      20 packets \
                        in each period of 10000000 ns in the receive context\n    frames   7 queued, 0 missed, 18226 in the \
                        receive context\n    queue    512 frames, thread cpumap/0/map:9\n";
        assert_eq!(stream_to_text(&fields), expected);
    }
}
