//! Minor codes that this ORB defines under its vendor id. docs/minor-codes.md lists and explains
//! them.

use corelane_wire::exception::SystemExceptionKind;
use corelane_wire::exception::minor::CORELANE;

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $kind:ident $name:ident = $number:literal;)*) => {
        $($(#[doc = $doc])*
        pub const $name: u32 = CORELANE | $number;)*

        pub(crate) fn name(code: u32) -> Option<&'static str> {
            match code {
                $($name => Some(stringify!($name)),)*
                _ => None,
            }
        }

        /// All minor codes of this ORB, each with its exception, number, name and description.
        pub static CORELANE_CODES: &[(SystemExceptionKind, u32, &str, &str)] =
            &[$((SystemExceptionKind::$kind, $name, stringify!($name), concat!($($doc),*)),)*];
    };
}

codes! {
    /// TRANSIENT: a call was forwarded more often than the maximum.
    Transient FORWARD_LOOP = 0x80;
    /// TIMEOUT: an operation used more processor time than it declares, and the server dropped its
    /// results.
    Timeout OVERRUN = 0x81;
    /// IMP_LIMIT: the request is larger than the largest message that the server accepts
    /// (`Limits::max_message_size`).
    ImpLimit MESSAGE_TOO_LARGE = 0x82;
    /// IMP_LIMIT: servants keep more octets of requests than the maximum
    /// (`OrbBuilder::max_kept_memory`).
    ImpLimit KEPT_OCTETS = 0x83;
    /// TRANSIENT: a request of a task arrived above the rate of the task, while another early
    /// request waited or no thread was free at which it could wait.
    Transient TASK_RATE = 0x84;
    /// TRANSIENT: the task of a task reference has ended.
    Transient TASK_ENDED = 0x85;
    /// NO_RESOURCES: the store of an admission object could not save the promise.
    NoResources NOT_SAVED = 0x86;
    /// TRANSIENT: the maximum number of requests wait for the store of durable event channels.
    Transient STORE_BUSY = 0x87;
    /// NO_RESOURCES: the connection does not fit the schedule of the event channel.
    NoResources NOT_ADMITTED = 0x88;
    /// NO_RESOURCES: the promise of the task is withdrawn, because the kernel has refused the
    /// task's core or priority.
    NoResources TASK_REFUSED = 0x89;
}
