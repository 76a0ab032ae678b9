//! Which messages may come and go in which state, and how a connection ends (CORBA 3.0.3 sections 15.5.1 and 15.4.7).
//!
//! ```text
//!          close(), requests running               last request done
//! Open ───────────────────────────────► Draining ───────────────────► CloseSent ──► Ended
//!   │            close(), none running: CloseConnection at once           ▲           ▲
//!   ├──────────────────────────────────────────────────────────────────────┘           │
//!   └── CloseConnection, MessageError or the end of the octets comes from the peer, or a fault ┘
//! ```

use super::ProtocolFault;
use crate::giop::{Header, MessageKind, Version};

/// What this side of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It sends requests.
    Client,
    /// It serves them.
    Server,
    /// Both: bidirectional GIOP.
    Both,
}

impl Role {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Server => "server",
            Role::Both => "peer of a bidirectional connection",
        }
    }

    const fn serves(self) -> bool {
        matches!(self, Role::Server | Role::Both)
    }

    const fn calls(self) -> bool {
        matches!(self, Role::Client | Role::Both)
    }
}

/// What to do with a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is for the part that handles its type.
    Deliver,
    /// Nothing: this side is closing, and the peer learns from CloseConnection that the request was not executed.
    Ignore,
    /// The connection has ended; close it. What becomes of this side's requests that wait:
    Ended(Fate),
}

/// What becomes of requests that wait when their connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They were not executed and will not be: each may be sent again on another connection, else TRANSIENT, COMPLETED_NO.
    NotExecuted,
    /// Nobody knows: COMM_FAILURE, COMPLETED_MAYBE.
    Unknown,
}

/// What to do to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseAction {
    /// Nothing yet: requests are being served. [`Lifecycle::request_finished`] says when.
    Wait,
    /// Send CloseConnection of this version, shut down writing, read until the end (for a bounded time), close.
    SendCloseConnection(Version),
    /// Close: a client before GIOP 1.2 has no CloseConnection to send.
    Close,
    /// Nothing more: it has ended already.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Draining,
    CloseSent,
    Ended,
}

/// The state of one connection from its first message to its end.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    role: Role,
    /// That of the last message either way: a CloseConnection must be understood.
    version: Version,
    phase: Phase,
    serving: u32,
}

impl Lifecycle {
    /// A connection that was just opened.
    #[must_use]
    pub fn new(role: Role) -> Lifecycle {
        Lifecycle { role, version: Version::GIOP_1_0, phase: Phase::Open, serving: 0 }
    }

    /// What this side is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Makes the connection bidirectional, as BI_DIR_IIOP contexts and policies of both sides have agreed.
    pub fn become_bidirectional(&mut self) {
        self.role = Role::Both;
    }

    /// A whole message has come.
    ///
    /// # Errors
    /// [`ProtocolFault::WrongSide`]; the connection has ended then.
    pub fn receive(&mut self, header: &Header) -> Result<Received, ProtocolFault> {
        use MessageKind::{
            CancelRequest, CloseConnection, Fragment, LocateReply, LocateRequest, MessageError, Reply, Request,
        };
        self.version = header.version;
        let for_this_side = match header.kind {
            Request | LocateRequest | CancelRequest => self.role.serves(),
            Reply | LocateReply => self.role.calls(),
            // A client of GIOP 1.0 and 1.1 should not send CloseConnection; what it means is clear all the same.
            CloseConnection | MessageError | Fragment => true,
        };
        if !for_this_side {
            self.phase = Phase::Ended;
            return Err(ProtocolFault::WrongSide { kind: header.kind, role: self.role });
        }
        match (header.kind, self.phase) {
            (_, Phase::Ended) => Ok(Received::Ignore),
            (CloseConnection, _) => Ok(Received::Ended(self.end(Fate::NotExecuted))),
            (MessageError, _) => Ok(Received::Ended(self.end(Fate::Unknown))),
            (Request | LocateRequest, Phase::Draining | Phase::CloseSent) => Ok(Received::Ignore),
            _ => Ok(Received::Deliver),
        }
    }

    /// A received request is going to be served; [`request_finished`](Lifecycle::request_finished) must follow.
    pub fn request_started(&mut self) {
        self.serving += 1;
    }

    /// A request is done and its reply, if it has one, is sent. Says what to do if the connection is closing.
    pub fn request_finished(&mut self) -> CloseAction {
        self.serving = self.serving.saturating_sub(1);
        if self.phase == Phase::Draining { self.close() } else { CloseAction::Nothing }
    }

    /// Requests that are being served.
    #[must_use]
    pub fn serving(&self) -> u32 {
        self.serving
    }

    /// A message of this version is going to be sent.
    pub fn sending(&mut self, version: Version) {
        self.version = version;
    }

    /// Whether a message of this type may be sent now.
    #[must_use]
    pub fn may_send(&self, kind: MessageKind) -> bool {
        use MessageKind::{CancelRequest, LocateReply, LocateRequest, Reply, Request};
        match (kind, self.phase) {
            (_, Phase::CloseSent | Phase::Ended) => false,
            (Request | LocateRequest, phase) => self.role.calls() && phase == Phase::Open,
            (CancelRequest, _) => self.role.calls(),
            (Reply | LocateReply, _) => self.role.serves(),
            _ => true,
        }
    }

    /// Whether new requests may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// This side wants to end the connection. Its own requests that wait must have their replies or be given up before.
    pub fn close(&mut self) -> CloseAction {
        match self.phase {
            Phase::CloseSent | Phase::Ended => CloseAction::Nothing,
            Phase::Open | Phase::Draining if self.serving > 0 => {
                self.phase = Phase::Draining;
                CloseAction::Wait
            }
            Phase::Open | Phase::Draining if self.role == Role::Client && self.version < Version::GIOP_1_2 => {
                self.phase = Phase::Ended;
                CloseAction::Close
            }
            Phase::Open | Phase::Draining => {
                self.phase = Phase::CloseSent;
                CloseAction::SendCloseConnection(self.version)
            }
        }
    }

    /// The peer's octets have ended, or the connection is broken. Says what becomes of this side's requests that wait.
    pub fn input_ended(&mut self) -> Fate {
        self.end(Fate::Unknown)
    }

    fn end(&mut self, fate: Fate) -> Fate {
        self.phase = Phase::Ended;
        fate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endian;

    fn header(version: Version, kind: MessageKind) -> Header {
        Header { version, endian: Endian::Big, more_fragments: false, kind, size: 0 }
    }

    fn v1_2(kind: MessageKind) -> Header {
        header(Version::GIOP_1_2, kind)
    }

    #[test]
    fn a_server_closes_when_its_last_request_is_done() {
        let mut server = Lifecycle::new(Role::Server);
        assert_eq!(server.receive(&v1_2(MessageKind::Request)), Ok(Received::Deliver));
        server.request_started();
        assert_eq!(server.close(), CloseAction::Wait);
        assert_eq!(server.receive(&v1_2(MessageKind::Request)), Ok(Received::Ignore));
        assert_eq!(server.receive(&v1_2(MessageKind::CancelRequest)), Ok(Received::Deliver));
        assert!(server.may_send(MessageKind::Reply) && !server.is_open());
        assert_eq!(server.request_finished(), CloseAction::SendCloseConnection(Version::GIOP_1_2));
        assert!(!server.may_send(MessageKind::Reply) && !server.may_send(MessageKind::MessageError));
        assert_eq!(server.receive(&v1_2(MessageKind::Request)), Ok(Received::Ignore));
        assert_eq!(server.close(), CloseAction::Nothing);
        assert_eq!(server.input_ended(), Fate::Unknown);
        assert_eq!(server.receive(&v1_2(MessageKind::CloseConnection)), Ok(Received::Ignore));
    }

    #[test]
    fn a_client_learns_what_became_of_its_requests() {
        let ends = |kind| Lifecycle::new(Role::Client).receive(&v1_2(kind));
        assert_eq!(ends(MessageKind::CloseConnection), Ok(Received::Ended(Fate::NotExecuted)));
        assert_eq!(ends(MessageKind::MessageError), Ok(Received::Ended(Fate::Unknown)));
        let mut client = Lifecycle::new(Role::Client);
        assert_eq!(client.input_ended(), Fate::Unknown);
        assert!(!client.may_send(MessageKind::Request));
        assert_eq!(client.request_finished(), CloseAction::Nothing);
    }

    #[test]
    fn a_client_says_goodbye_only_in_giop_1_2() {
        let mut client = Lifecycle::new(Role::Client);
        client.sending(Version::GIOP_1_1);
        assert_eq!(client.close(), CloseAction::Close);
        let mut client = Lifecycle::new(Role::Client);
        client.sending(Version::GIOP_1_2);
        assert_eq!(client.close(), CloseAction::SendCloseConnection(Version::GIOP_1_2));
    }

    #[test]
    fn messages_of_the_wrong_side_end_the_connection() {
        use MessageKind::{CancelRequest, LocateReply, LocateRequest, Reply, Request};
        for (role, kinds) in
            [(Role::Client, &[Request, LocateRequest, CancelRequest][..]), (Role::Server, &[Reply, LocateReply])]
        {
            for kind in kinds {
                let mut side = Lifecycle::new(role);
                assert_eq!(side.receive(&v1_2(*kind)), Err(ProtocolFault::WrongSide { kind: *kind, role }));
                assert!(!side.is_open());
                let mut both = Lifecycle::new(role);
                both.become_bidirectional();
                assert_eq!(both.receive(&v1_2(*kind)), Ok(Received::Deliver));
            }
        }
    }

    #[test]
    fn who_may_send_what() {
        let (client, server) = (Lifecycle::new(Role::Client), Lifecycle::new(Role::Server));
        assert!(client.may_send(MessageKind::Request) && !client.may_send(MessageKind::Reply));
        assert!(server.may_send(MessageKind::Reply) && !server.may_send(MessageKind::CancelRequest));
    }
}
