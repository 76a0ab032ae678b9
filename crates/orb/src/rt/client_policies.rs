//! Real-time policies of clients: the policies of the ORB, of a thread or of a reference, and the
//! policies in the profiles of references.

use corelane_net::{Endpoint, SpinPolicy};
use corelane_sched::{PriorityBands, PriorityModel, selection};

use super::protocol::{Protocol, SocketSettings};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// Real-time policies of a client, for a reference
/// ([`ObjectRef::with_rt_policies`](crate::ObjectRef::with_rt_policies)), a thread
/// ([`with_client_policies`](super::with_client_policies)) or the ORB
/// ([`RtConfig::client_policies`](super::RtConfig::client_policies)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtClientPolicies {
    /// PriorityBandedConnectionPolicy (45): the low and the high end of each band. Calls of one
    /// band share connections. Calls of different bands never share connections.
    pub priority_bands: Option<Vec<(i16, i16)>>,
    /// PrivateConnectionPolicy (44): if true, only a reference and its copies use the connections
    /// of this reference.
    pub private_connection: bool,
    /// ClientProtocolPolicy (43): permitted protocols with their socket properties, preferred
    /// first. If the list is empty, the list in the reference applies. If both lists are empty, all
    /// protocols are permitted.
    pub client_protocols: Vec<Protocol>,
}

/// The real-time policies in one profile of a reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfilePolicies {
    pub(crate) model: Option<(PriorityModel, i16)>,
    pub(crate) bands: Vec<(i16, i16)>,
    pub(crate) protocols: Vec<Protocol>,
}

/// The checked real-time policies of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientPolicies {
    pub(crate) bands: Vec<(i16, i16)>,
    pub(crate) private: bool,
    pub(crate) protocols: Vec<Protocol>,
    /// The spin policy of a reference; `None` at other levels. References with different spin
    /// policies share no connections.
    pub(crate) spin: Option<SpinPolicy>,
}

impl ClientPolicies {
    /// Returns these policies, with each unset policy taken from `wider`.
    pub(crate) fn or(self, wider: &ClientPolicies) -> Self {
        let or = |own: Vec<_>, wider: &Vec<_>| if own.is_empty() { wider.clone() } else { own };
        ClientPolicies {
            bands: if self.bands.is_empty() { wider.bands.clone() } else { self.bands },
            private: self.private || wider.private,
            protocols: or(self.protocols, &wider.protocols),
            spin: self.spin.or(wider.spin),
        }
    }
}

impl RtClientPolicies {
    /// Checks the policies and converts them.
    ///
    /// # Errors
    /// BAD_PARAM for invalid bands and for negative buffer sizes.
    pub(crate) fn check(&self) -> Result<ClientPolicies, SystemException> {
        let bands = self.priority_bands.clone();
        if let Some(bands) = &bands {
            PriorityBands::new(bands.iter().copied())
                .map_err(|error| SystemException::new(Kind::BadParam, 0, Completion::No).because(error.to_string()))?;
        }
        if !self.client_protocols.iter().all(|protocol| protocol.is_valid()) {
            let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
            return Err(exception.because("the size of a buffer must not be negative"));
        }
        let (bands, protocols) = (bands.unwrap_or_default(), self.client_protocols.clone());
        Ok(ClientPolicies { bands, private: self.private_connection, protocols, spin: None })
    }
}

/// Returns the protocols that a client may use: the client's list or the reference's list. Returns
/// `None` if both lists have protocols, which is a conflict.
pub(crate) fn usable_protocols<'p>(client: &'p ClientPolicies, profile: &'p ProfilePolicies) -> Option<&'p [Protocol]> {
    selection::reconcile_policy(&client.protocols, &profile.protocols).ok()
}

/// Returns the rank of an endpoint's protocol among the permitted protocols, with the protocol's
/// socket settings. Returns `None` if the protocol is not permitted.
pub(crate) fn protocol_rank(protocols: &[Protocol], endpoint: &Endpoint) -> Option<(usize, SocketSettings)> {
    if protocols.is_empty() {
        return Some((0, SocketSettings::default()));
    }
    let place = protocols.iter().position(|protocol| protocol.serves(endpoint))?;
    protocols.get(place).map(|protocol| (place, protocol.socket_settings()))
}
