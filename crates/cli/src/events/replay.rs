//! The command `corelane events replay`, which prints the events that a durable channel keeps.

use std::fmt::Display;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use corelane::{Orb, SystemException, minor};
use corelane_services::events::corelane_events::NumberedEvent;
use corelane_services::events::corelane_events::durable_channel::AcknowledgeError;
use corelane_sys::clock::Monotonic;
use corelane_sys::{
    poll,
    signal::{self, TerminationRequests},
};
use serde_json::json;

use super::channel::{durable_channel, message};
use super::options::EventsArguments;
use super::tail::event_json;
use crate::json::any_to_json;
use crate::text::{json_line, printable};

/// Maximum number of events that the command requests at a time.
const MAX_READ: u32 = 1_024;
/// Time in milliseconds for which the server waits for the next event. After an empty answer, the
/// command waits until this time has passed since the question.
const WAIT_MS: u32 = 200;

/// Prints events until the last one or, with `--follow`, until a termination signal. Ends earlier
/// if `--count` events are printed or if the reader closes the pipe.
pub(super) fn run(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let termination = signal::termination().map_err(message)?;
    let orb = Orb::new().map_err(message)?;
    let channel = durable_channel(&orb, &arguments.channel)?;
    let mut last = match &arguments.consumer {
        Some(name) => patiently(arguments, termination, is_busy, || channel.resume_consumer(name, 0))?,
        None => arguments.from.unwrap_or(1).saturating_sub(1),
    };
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let wait = if arguments.is_followed { WAIT_MS } else { 0 };
    while left > 0 {
        let max = u32::try_from(left).unwrap_or(u32::MAX).min(MAX_READ);
        let asked_at = Monotonic::now();
        let events = match channel.events_after(last, max, wait) {
            // With `--follow`, the command asks a busy store again.
            Err(exception) if arguments.is_followed && is_busy(&exception) => Vec::new(),
            answer => answer.map_err(message)?,
        };
        // A server that returned the same events again would be asked without end.
        let is_in_order =
            events.first().is_none_or(|first| first.number > last) && events.is_sorted_by_key(|it| it.number);
        if !is_in_order {
            return Err("the server has returned events out of order".to_owned());
        }
        if events.is_empty() && !arguments.is_followed {
            break;
        }
        // A server may return more events than it was asked for.
        for event in events.iter().take(max as usize) {
            let text = line(event, arguments.is_json);
            if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                return Ok(());
            }
            last = event.number;
            left -= 1;
        }
        if let (Some(name), false) = (&arguments.consumer, events.is_empty()) {
            let is_refused =
                |error: &AcknowledgeError| matches!(error, AcknowledgeError::System(exception) if is_busy(exception));
            patiently(arguments, termination, is_refused, || channel.acknowledge(name, last))?;
        }
        // A server that does not wait for an event is not asked again at once.
        let next_at = if events.is_empty() { asked_at + Duration::from_millis(WAIT_MS.into()) } else { asked_at };
        poll::wait_readable_any([termination.as_fd()], Some(next_at)).map_err(message)?;
        if termination.is_requested() {
            break;
        }
    }
    Ok(())
}

fn is_busy(exception: &SystemException) -> bool {
    exception.minor() == minor::STORE_BUSY
}

/// Makes a call. With `--follow`, repeats it while the store is busy, until a termination signal.
fn patiently<T, E: Display>(
    arguments: &EventsArguments,
    termination: &TerminationRequests,
    is_busy: impl Fn(&E) -> bool,
    call: impl Fn() -> Result<T, E>,
) -> Result<T, String> {
    loop {
        let is_last = !arguments.is_followed || termination.is_requested();
        match call() {
            Err(error) if !is_last && is_busy(&error) => {}
            answer => return answer.map_err(message),
        }
        let next_at = Monotonic::now() + Duration::from_millis(WAIT_MS.into());
        poll::wait_readable_any([termination.as_fd()], Some(next_at)).map_err(message)?;
    }
}

fn line(numbered: &NumberedEvent, is_json: bool) -> String {
    let NumberedEvent { number, stored_at, event, .. } = numbered;
    if is_json {
        let mut object = event_json(event);
        object["number"] = json!(number);
        object["stored_at"] = json!(stored_at);
        return json_line(&object);
    }
    let value = printable(any_to_json(&event.data.any_value).to_string().trim_end());
    let (header, octets) = (&event.header, event.data.payload.len());
    format!("{number} type {} source {}: {octets} octets, {value}\n", header.r#type, header.source)
}
