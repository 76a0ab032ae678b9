//! The client's real-time policies: those of the ORB, of a thread or a reference, and those in the
//! profile of a reference.

use corelane_net::{Endpoint, SpinPolicy};
use corelane_sched::{PriorityBands, PriorityModel, selection};

use super::protocol::{Protocol, SocketSettings};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// Real-time policies of a reference, set with
/// [`ObjectRef::with_rt_policies`](crate::ObjectRef::with_rt_policies).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtClientPolicies {
    /// PriorityBandedConnectionPolicy (45): low and high end of each band. Calls of one band share
    /// connections; calls of different bands never do.
    pub priority_bands: Option<Vec<(i16, i16)>>,
    /// PrivateConnectionPolicy (44): if true, only this reference and its copies use its
    /// connections.
    pub private_connection: bool,
    /// ClientProtocolPolicy (43): permitted protocols with their socket properties, preferred
    /// first. If the list is empty, the list in the reference applies; if that is empty too, all
    /// protocols are permitted.
    pub client_protocols: Vec<Protocol>,
}

/// The real-time policies that one profile of a reference holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfilePolicies {
    pub(crate) model: Option<(PriorityModel, i16)>,
    pub(crate) bands: Vec<(i16, i16)>,
    pub(crate) protocols: Vec<Protocol>,
}

/// The policies of a client, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientPolicies {
    pub(crate) bands: Vec<(i16, i16)>,
    pub(crate) private: bool,
    pub(crate) protocols: Vec<Protocol>,
    /// Polling of callers; of a reference only. References that differ in it share no connections.
    pub(crate) spin: Option<SpinPolicy>,
}

impl ClientPolicies {
    /// Completes these policies: where one is not set, the ORB's policy in `wider` is used.
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
    /// Checks the policies.
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
            return Err(exception.because("the size of a buffer is not negative"));
        }
        let (bands, protocols) = (bands.unwrap_or_default(), self.client_protocols.clone());
        Ok(ClientPolicies { bands, private: self.private_connection, protocols, spin: None })
    }
}

/// Returns the protocols that a client may use: the client's list or the reference's list. `None`
/// if both sides list protocols.
pub(crate) fn usable_protocols<'p>(client: &'p ClientPolicies, profile: &'p ProfilePolicies) -> Option<&'p [Protocol]> {
    selection::reconcile_policy(&client.protocols, &profile.protocols).ok()
}

/// Returns the rank of an endpoint's protocol among the permitted ones, with the socket settings of
/// the protocol. `None` if the protocol is not permitted.
pub(crate) fn protocol_rank(protocols: &[Protocol], endpoint: &Endpoint) -> Option<(usize, SocketSettings)> {
    if protocols.is_empty() {
        return Some((0, SocketSettings::default()));
    }
    let place = protocols.iter().position(|protocol| protocol.serves(endpoint))?;
    protocols.get(place).map(|protocol| (place, protocol.socket_settings()))
}
