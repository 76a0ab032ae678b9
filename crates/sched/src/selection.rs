//! Decisions of the client: the effective value of a policy, the band of a call, and the endpoints
//! for the call.

use std::fmt;

use crate::bands::{PriorityBand, PriorityBands};
use crate::lane_choice::PriorityModel;
use crate::priority::Priority;

/// The reason why a call cannot be made. The client raises TRANSIENT 2 for
/// [`SelectionError::NoEndpoint`], and INV_POLICY for the other reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionError {
    /// Reference and client both set the policy.
    PolicyConflict,
    /// Bands are set for a reference without a priority model.
    BandsWithoutModel,
    /// The priority is in no band.
    OutsideBands,
    /// No endpoint serves the priority.
    NoEndpoint,
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SelectionError::PolicyConflict => "reference and client both set the policy",
            SelectionError::BandsWithoutModel => "priority bands for an object without a priority model",
            SelectionError::OutsideBands => "the priority is in no band",
            SelectionError::NoEndpoint => "no endpoint of the object serves the priority",
        })
    }
}

impl std::error::Error for SelectionError {}

/// Returns the effective value of a policy that either the client or the reference may set; an
/// empty list counts as unset.
///
/// # Errors
/// [`SelectionError::PolicyConflict`] if both set the policy.
pub fn reconcile_policy<'v, T>(client: &'v [T], reference: &'v [T]) -> Result<&'v [T], SelectionError> {
    match (client.is_empty(), reference.is_empty()) {
        (false, false) => Err(SelectionError::PolicyConflict),
        (true, _) => Ok(reference),
        (false, true) => Ok(client),
    }
}

/// Returns the band whose connection a call at `priority` uses; `None` without bands. `priority` is
/// the client's priority or, under the server-declared model, the object's priority.
///
/// # Errors
/// [`SelectionError::BandsWithoutModel`] or [`SelectionError::OutsideBands`].
pub fn select_band(
    model: Option<PriorityModel>,
    bands: Option<&PriorityBands>,
    priority: Priority,
) -> Result<Option<PriorityBand>, SelectionError> {
    let Some(bands) = bands else { return Ok(None) };
    if model.is_none() {
        return Err(SelectionError::BandsWithoutModel);
    }
    bands.band_of(priority).map(Some).ok_or(SelectionError::OutsideBands)
}

/// Returns true if an endpoint serves a call. `endpoint` is the priority of the endpoint in the
/// reference (-1: none). `has_no_priorities` is true if no endpoint of the reference has a
/// priority.
#[must_use]
pub fn endpoint_serves(
    model: Option<PriorityModel>,
    band: Option<PriorityBand>,
    priority: Priority,
    endpoint: i16,
    has_no_priorities: bool,
) -> bool {
    match (Priority::new(endpoint), band) {
        _ if model != Some(PriorityModel::ClientPropagated) || has_no_priorities => true,
        (Some(endpoint), Some(band)) => band.contains(endpoint),
        (Some(endpoint), None) => endpoint == priority,
        (None, _) => false,
    }
}

/// Returns the indices of the endpoints that serve a call. `endpoints` are the endpoint priorities
/// in the reference (-1: none).
///
/// Without a priority model, and with a server-declared priority, all endpoints serve the call.
/// Otherwise the endpoints with exactly the client's priority serve it or, if the call has a band,
/// the endpoints inside the band. If no endpoint has a priority, as for a pool without lanes, all
/// endpoints serve the call.
///
/// # Errors
/// [`SelectionError::NoEndpoint`].
pub fn select_endpoints(
    model: Option<PriorityModel>,
    band: Option<PriorityBand>,
    priority: Priority,
    endpoints: &[i16],
) -> Result<Vec<usize>, SelectionError> {
    let has_no_priorities = endpoints.iter().all(|endpoint| *endpoint == -1);
    let serves = |&index: &usize| endpoint_serves(model, band, priority, endpoints[index], has_no_priorities);
    let found: Vec<usize> = (0..endpoints.len()).filter(serves).collect();
    if found.is_empty() { Err(SelectionError::NoEndpoint) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Option<PriorityModel> = Some(PriorityModel::ClientPropagated);
    const SERVER: Option<PriorityModel> = Some(PriorityModel::ServerDeclared);

    fn p(number: i16) -> Priority {
        Priority::new(number).unwrap()
    }

    #[test]
    fn policy_set_on_both_sides_is_a_conflict() {
        assert_eq!(reconcile_policy::<u8>(&[], &[]), Ok(&[][..]));
        assert_eq!(reconcile_policy(&[1], &[]), Ok(&[1][..]));
        assert_eq!(reconcile_policy(&[], &[2]), Ok(&[2][..]));
        assert_eq!(reconcile_policy(&[1], &[1]), Err(SelectionError::PolicyConflict));
    }

    #[test]
    fn bands_need_a_model_and_must_contain_the_priority() {
        let bands = PriorityBands::new([(5, 15), (25, 35)]).unwrap();
        assert_eq!(select_band(None, None, p(3)), Ok(None));
        assert_eq!(select_band(None, Some(&bands), p(5)), Err(SelectionError::BandsWithoutModel));
        assert_eq!(select_band(CLIENT, Some(&bands), p(20)), Err(SelectionError::OutsideBands));
        assert_eq!(select_band(SERVER, Some(&bands), p(30)).unwrap().unwrap().high, p(35));
    }

    #[test]
    fn endpoints_are_selected_by_priority() {
        let lanes = [10, 20, 30];
        assert_eq!(select_endpoints(None, None, p(7), &lanes), Ok(vec![0, 1, 2]));
        assert_eq!(select_endpoints(SERVER, None, p(7), &[-1, -1]), Ok(vec![0, 1]));
        assert_eq!(select_endpoints(CLIENT, None, p(20), &lanes), Ok(vec![1]));
        assert_eq!(select_endpoints(CLIENT, None, p(21), &lanes), Err(SelectionError::NoEndpoint));
        assert_eq!(select_endpoints(CLIENT, None, p(21), &[-1]), Ok(vec![0]));
        assert_eq!(select_endpoints(CLIENT, None, p(21), &[-1, -1]), Ok(vec![0, 1]));
        assert_eq!(select_endpoints(CLIENT, None, p(21), &[-1, 20]), Err(SelectionError::NoEndpoint));
        let band = PriorityBand::new(15, 30).unwrap();
        assert_eq!(select_endpoints(CLIENT, Some(band), p(16), &lanes), Ok(vec![1, 2]));
        assert_eq!(select_endpoints(CLIENT, None, p(0), &[]), Err(SelectionError::NoEndpoint));
    }

    #[test]
    fn every_reason_has_a_different_text() {
        let texts: Vec<String> = [
            SelectionError::PolicyConflict,
            SelectionError::BandsWithoutModel,
            SelectionError::OutsideBands,
            SelectionError::NoEndpoint,
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        for (index, text) in texts.iter().enumerate() {
            assert!(!text.is_empty() && !texts[..index].contains(text), "{text:?}");
        }
    }
}
