//! Captured messages as lines of text or of JSON.

use std::io::Write;
use std::time::Duration;

use corelane_sniff::{CapturedRequest, MessageContent, SniffEvent, SniffRecord};
use corelane_wire::codeset::CodeSets;
use corelane_wire::exception::{Completion, SystemExceptionBody};
use corelane_wire::giop::{
    Header, LocateReply, LocateStatus, MessageKind, Reply, ReplyStatus, Request, ResponseExpected, TargetAddress,
};
use corelane_wire::ior::escape_key;
use corelane_wire::{Cdr, Decoder, Ior, Limits};
use serde_json::{Map, Value as Json, json};

use super::SniffArguments;
use super::typed::Signatures;
use crate::json::hexadecimal;
use crate::text::{excerpt, json_line, printable};

static LIMITS: Limits = Limits::DEFAULT;
const MAX_VALUES: usize = 1_000;

pub(super) struct MessagePrinter<'a, 'o> {
    arguments: &'a SniffArguments,
    signatures: Option<Signatures<'a>>,
    out: &'o mut dyn Write,
    /// The time of the first captured event, from which printed times count; `None` before this
    /// event.
    first: Option<u64>,
    failure: Option<String>,
}

type Members = Map<String, Json>;

impl<'a, 'o> MessagePrinter<'a, 'o> {
    pub(super) fn new(
        arguments: &'a SniffArguments,
        signatures: Option<Signatures<'a>>,
        out: &'o mut dyn Write,
    ) -> Self {
        MessagePrinter { arguments, signatures, out, first: None, failure: None }
    }

    /// Flushes the output. Returns the first write error as a message for the user.
    pub(super) fn written(&mut self) -> Result<(), String> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.out.flush().map_err(|error| format!("cannot write: {error}")),
        }
    }

    pub(super) fn note(&mut self, count: u64, what: &str) -> Result<(), String> {
        let line = if self.arguments.is_json {
            json_line(&json!({ "schema": 1, "left_out": what, "count": count }))
        } else {
            format!("{count} {what}\n")
        };
        self.out.write_all(line.as_bytes()).map_err(|error| format!("cannot write: {error}"))
    }

    pub(super) fn seen(&mut self, seen: &SniffRecord<'_>) {
        let first = *self.first.get_or_insert(seen.time_ns);
        let mut members = Members::new();
        let Some(text) = self.parts(seen, &mut members) else { return };
        let line = if self.arguments.is_json {
            members.insert("schema".to_owned(), json!(1));
            members.insert("time_ns".to_owned(), json!(seen.time_ns));
            members.insert("from".to_owned(), json!(seen.from.to_string()));
            members.insert("to".to_owned(), json!(seen.to.to_string()));
            json_line(&Json::Object(members))
        } else {
            let time = Duration::from_nanos(seen.time_ns.saturating_sub(first)).as_secs_f64();
            format!("{time:.6} {} > {}  {}\n", seen.from, seen.to, printable(&text))
        };
        if let Err(error) = self.out.write_all(line.as_bytes()) {
            self.failure.get_or_insert(format!("cannot write: {error}"));
        }
    }

    fn parts(&mut self, seen: &SniffRecord<'_>, members: &mut Members) -> Option<String> {
        let mut add = |name: &str, value: Json| drop(members.insert(name.to_owned(), value));
        Some(match &seen.event {
            SniffEvent::Message { header, content, fragment_starts, code_sets } => {
                return self.message(header, content, (*fragment_starts, *code_sets), seen.time_ns, members);
            }
            SniffEvent::MissingBytes(octets) => {
                add("lost_octets", json!(octets));
                format!("{octets} octets are not in the capture")
            }
            SniffEvent::DroppedBytes(octets) => {
                add("dropped_octets", json!(octets));
                format!("{octets} octets were dropped: too many wait for the rest of their messages")
            }
            SniffEvent::UnfinishedMessage(octets) => {
                add("unfinished_octets", json!(octets));
                format!("the connection or the capture ends within a message, of which there are {octets} octets")
            }
            SniffEvent::Fault(fault) => {
                add("fault", json!(fault.to_string()));
                format!("not GIOP from here on: {fault}")
            }
            _ => return None,
        })
    }

    fn message(
        &mut self,
        header: &Header,
        content: &MessageContent<'_>,
        form: (&[usize], CodeSets),
        at: u64,
        members: &mut Members,
    ) -> Option<String> {
        members.insert("version".to_owned(), json!(header.version.to_string()));
        members.insert("kind".to_owned(), json!(name_of(header.kind)));
        members.insert("size".to_owned(), json!(header.total_len()));
        let text = match content {
            MessageContent::Request(request) => self.request(request, form, members)?,
            MessageContent::Reply(reply, call) => self.reply(reply, call.as_ref(), form, at, members)?,
            MessageContent::LocateRequest(request) => {
                members.insert("request_id".to_owned(), json!(request.request_id));
                self.unless_filtered(None)?;
                format!("{} {}", request.request_id, target(&request.target, members))
            }
            MessageContent::LocateReply(reply, call) => self.locate_reply(reply, call.as_ref(), at, members)?,
            MessageContent::CancelRequest(cancel) => {
                self.unless_filtered(None)?;
                members.insert("request_id".to_owned(), json!(cancel.request_id));
                cancel.request_id.to_string()
            }
            MessageContent::Malformed(error) => {
                members.insert("malformed".to_owned(), json!(error.to_string()));
                format!("malformed: {error}")
            }
            _ => {
                self.unless_filtered(None)?;
                String::new()
            }
        };
        Some(format!("{} {} {text}", header.version, name_of(header.kind)).trim_end().to_owned())
    }

    /// Returns `None` if the user's filters leave out a message whose response time is unknown.
    /// `--slower` leaves out each such message. `--operation` leaves out messages with another
    /// operation or with none.
    fn unless_filtered(&self, operation: Option<&str>) -> Option<()> {
        let wanted = &self.arguments.operations;
        let is_wanted = wanted.is_empty() || operation.is_some_and(|name| wanted.iter().any(|one| one == name));
        (is_wanted && self.arguments.slower.is_none()).then_some(())
    }

    fn request(
        &mut self,
        request: &Request<'_>,
        (fragment_starts, code_sets): (&[usize], CodeSets),
        members: &mut Members,
    ) -> Option<String> {
        let operation = String::from_utf8_lossy(request.operation);
        self.unless_filtered(Some(operation.as_ref()))?;
        let response = match request.response_expected {
            ResponseExpected::None => "none",
            ResponseExpected::Server => "server",
            ResponseExpected::Target => "target",
        };
        members.insert("request_id".to_owned(), json!(request.request_id));
        members.insert("operation".to_owned(), json!(operation));
        members.insert("response".to_owned(), json!(response));
        let target = target(&request.target, members);
        let mut text = format!("{} {} {target}", request.request_id, excerpt(&operation));
        if let Some(signatures) = &mut self.signatures {
            let mut body = request.body().with_code_sets(code_sets).with_limits(&LIMITS);
            body = body.with_fragment_starts(fragment_starts);
            text += &values("arguments", signatures.arguments(&operation, &mut body), members);
        }
        Some(text)
    }

    fn call(&self, call: Option<&CapturedRequest>, at: u64, members: &mut Members) -> Option<String> {
        let wanted = &self.arguments.operations;
        let is_wanted = wanted.is_empty() || call.is_some_and(|call| wanted.contains(&call.operation));
        let time = call.map(|call| at.saturating_sub(call.time_ns));
        let is_slow = |limit: Duration| time.is_some_and(|time| Duration::from_nanos(time) > limit);
        if !is_wanted || !self.arguments.slower.is_none_or(is_slow) {
            return None;
        }
        members.insert("after_ns".to_owned(), json!(time));
        let Some(call) = call else {
            members.insert("operation".to_owned(), Json::Null);
            return Some("(its request is not in the capture)".to_owned());
        };
        members.insert("operation".to_owned(), json!(call.operation));
        let time = format!("after {:.3} ms", time.unwrap_or_default() as f64 / 1e6);
        Some(if call.operation.is_empty() { time } else { format!("{} {time}", excerpt(&call.operation)) })
    }

    fn reply(
        &mut self,
        reply: &Reply<'_>,
        call: Option<&CapturedRequest>,
        (fragment_starts, code_sets): (&[usize], CodeSets),
        at: u64,
        members: &mut Members,
    ) -> Option<String> {
        let known = self.call(call, at, members)?;
        let status = match reply.status {
            ReplyStatus::NoException => "NO_EXCEPTION",
            ReplyStatus::UserException => "USER_EXCEPTION",
            ReplyStatus::SystemException => "SYSTEM_EXCEPTION",
            ReplyStatus::LocationForward => "LOCATION_FORWARD",
            ReplyStatus::LocationForwardPerm => "LOCATION_FORWARD_PERM",
            ReplyStatus::NeedsAddressingMode => "NEEDS_ADDRESSING_MODE",
        };
        members.insert("request_id".to_owned(), json!(reply.request_id));
        members.insert("status".to_owned(), json!(status));
        let mut text = format!("{} {known} {status}", reply.request_id);
        let body = reply.body().with_code_sets(code_sets).with_limits(&LIMITS);
        let mut body = body.with_fragment_starts(fragment_starts);
        match reply.status {
            ReplyStatus::NoException => {
                if let (Some(signatures), Some(call)) = (&mut self.signatures, call) {
                    text += &values("results", signatures.results(&call.operation, &mut body), members);
                }
            }
            ReplyStatus::UserException => {
                let id = body.read_str_octets().map(|octets| String::from_utf8_lossy(octets).into_owned());
                let id = id.unwrap_or_default();
                members.insert("exception".to_owned(), json!(id));
                text += &format!(" {}", excerpt(&id));
                if let (Some(signatures), Some(call)) = (&mut self.signatures, call) {
                    text += &values("members", signatures.exception(&call.operation, &id, &mut body), members);
                }
            }
            ReplyStatus::SystemException => text += &system_exception(&mut body, members),
            ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => text += &forward(&mut body, members),
            ReplyStatus::NeedsAddressingMode => {}
        }
        Some(text)
    }

    fn locate_reply(
        &self,
        reply: &LocateReply<'_>,
        call: Option<&CapturedRequest>,
        at: u64,
        members: &mut Members,
    ) -> Option<String> {
        let known = self.call(call, at, members)?;
        let status = match reply.status {
            LocateStatus::UnknownObject => "UNKNOWN_OBJECT",
            LocateStatus::ObjectHere => "OBJECT_HERE",
            LocateStatus::ObjectForward => "OBJECT_FORWARD",
            LocateStatus::ObjectForwardPerm => "OBJECT_FORWARD_PERM",
            LocateStatus::SystemException => "LOC_SYSTEM_EXCEPTION",
            LocateStatus::NeedsAddressingMode => "LOC_NEEDS_ADDRESSING_MODE",
        };
        members.insert("request_id".to_owned(), json!(reply.request_id));
        members.insert("status".to_owned(), json!(status));
        let mut body = reply.body().with_limits(&LIMITS);
        let more = match reply.status {
            LocateStatus::SystemException => system_exception(&mut body, members),
            LocateStatus::ObjectForward | LocateStatus::ObjectForwardPerm => forward(&mut body, members),
            _ => String::new(),
        };
        Some(format!("{} {known} {status}{more}", reply.request_id))
    }
}

pub(super) fn error(reason: &str, is_json: bool, out: &mut dyn Write) -> std::io::Result<()> {
    let line = if is_json { json_line(&json!({ "schema": 1, "error": reason })) } else { format!("error: {reason}\n") };
    out.write_all(line.as_bytes())
}

const fn name_of(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::Request => "Request",
        MessageKind::Reply => "Reply",
        MessageKind::CancelRequest => "CancelRequest",
        MessageKind::LocateRequest => "LocateRequest",
        MessageKind::LocateReply => "LocateReply",
        MessageKind::CloseConnection => "CloseConnection",
        MessageKind::MessageError => "MessageError",
        MessageKind::Fragment => "Fragment",
    }
}

fn target(target: &TargetAddress<'_>, members: &mut Members) -> String {
    match target {
        TargetAddress::Key(key) => {
            members.insert("key".to_owned(), json!(hexadecimal(key)));
            format!("key {}", excerpt(&escape_key(key)))
        }
        TargetAddress::Profile { tag, data } | TargetAddress::Reference { tag, data, .. } => {
            members.insert("profile".to_owned(), json!({ "tag": tag, "data": hexadecimal(data) }));
            format!("profile of tag {tag}, {} octets", data.len())
        }
    }
}

fn values(name: &str, values: Result<Json, String>, members: &mut Members) -> String {
    match values {
        Ok(values) => {
            let text = values.to_string();
            members.insert(name.to_owned(), values);
            match text.char_indices().nth(MAX_VALUES) {
                Some((end, _)) => format!(" {}...", &text[..end]),
                None => format!(" {text}"),
            }
        }
        Err(reason) => {
            members.insert(name.to_owned(), Json::Null);
            members.insert("not_decoded".to_owned(), json!(reason));
            format!(" ({name} not decoded: {reason})")
        }
    }
}

fn system_exception(body: &mut Decoder<'_>, members: &mut Members) -> String {
    match SystemExceptionBody::read(body) {
        Ok(SystemExceptionBody { kind, minor, completed }) => {
            members.insert("exception".to_owned(), json!(kind.repository_id()));
            members.insert("minor".to_owned(), json!(minor));
            let completed = match completed {
                Completion::Yes => "COMPLETED_YES",
                Completion::No => "COMPLETED_NO",
                Completion::Maybe => "COMPLETED_MAYBE",
            };
            members.insert("completed".to_owned(), json!(completed));
            format!(" {kind} minor {minor:#010x} {completed}")
        }
        Err(error) => {
            members.insert("not_decoded".to_owned(), json!(error.to_string()));
            format!(" (malformed: {error})")
        }
    }
}

fn forward(body: &mut Decoder<'_>, members: &mut Members) -> String {
    match Ior::decode(body).and_then(|ior| ior.to_text()) {
        Ok(text) => {
            members.insert("forward".to_owned(), json!(text));
            format!(" {text}")
        }
        Err(error) => {
            members.insert("not_decoded".to_owned(), json!(error.to_string()));
            format!(" (malformed: {error})")
        }
    }
}
