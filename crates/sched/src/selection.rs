//! The client's side: which policy value holds, which band a call belongs to, and which endpoints serve it.

use std::fmt;

use crate::bands::{PriorityBand, PriorityBands};
use crate::placement::PriorityModel;
use crate::priority::Priority;

/// Why a call cannot be made: INV_POLICY, but for [`Unreachable::NoEndpoint`], which is TRANSIENT 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Reference and client both set the policy.
    Conflict,
    /// Bands, and a reference without a priority model.
    BandsWithoutModel,
    /// The priority is in no band.
    OutsideBands,
    /// No endpoint serves the priority.
    NoEndpoint,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unreachable::Conflict => "reference and client both set the policy",
            Unreachable::BandsWithoutModel => "priority bands for an object without a priority model",
            Unreachable::OutsideBands => "the priority is in no band",
            Unreachable::NoEndpoint => "no endpoint of the object serves the priority",
        })
    }
}

impl std::error::Error for Unreachable {}

/// The value of a list policy that both sides may set: that of the side which sets one; an empty list counts as unset.
///
/// # Errors
/// [`Unreachable::Conflict`] if both do.
pub fn reconcile<'v, T>(client: &'v [T], reference: &'v [T]) -> Result<&'v [T], Unreachable> {
    match (client.is_empty(), reference.is_empty()) {
        (false, false) => Err(Unreachable::Conflict),
        (true, _) => Ok(reference),
        (false, true) => Ok(client),
    }
}

/// The band whose connection a call takes at `priority`: the client's own, or for a server-declared object the object's. `None`
/// without bands.
///
/// # Errors
/// [`Unreachable::BandsWithoutModel`], [`Unreachable::OutsideBands`].
pub fn band(
    model: Option<PriorityModel>,
    bands: Option<&PriorityBands>,
    priority: Priority,
) -> Result<Option<PriorityBand>, Unreachable> {
    let Some(bands) = bands else { return Ok(None) };
    if model.is_none() {
        return Err(Unreachable::BandsWithoutModel);
    }
    bands.band_of(priority).map(Some).ok_or(Unreachable::OutsideBands)
}

/// Whether an endpoint serves a call: `endpoint` is the priority that the reference gives it (-1: none), `equal` says that it gives none
/// to any. The rule is that of [`endpoints`].
#[must_use]
pub fn serves(
    model: Option<PriorityModel>,
    band: Option<PriorityBand>,
    priority: Priority,
    endpoint: i16,
    equal: bool,
) -> bool {
    match (Priority::new(endpoint), band) {
        _ if model != Some(PriorityModel::ClientPropagated) || equal => true,
        (Some(endpoint), Some(band)) => band.contains(endpoint),
        (Some(endpoint), None) => endpoint == priority,
        (None, _) => false,
    }
}

/// Which endpoints serve a call, as indices into `endpoints`, the priorities that the reference gives them (-1: none).
///
/// Without a model, or with a server-declared priority, all do. Else those of exactly the client's priority or inside its band; where
/// none has a priority, as for a pool without lanes, all do.
///
/// # Errors
/// [`Unreachable::NoEndpoint`].
pub fn endpoints(
    model: Option<PriorityModel>,
    band: Option<PriorityBand>,
    priority: Priority,
    endpoints: &[i16],
) -> Result<Vec<usize>, Unreachable> {
    let equal = endpoints.iter().all(|endpoint| *endpoint == -1);
    let serves = |&index: &usize| serves(model, band, priority, endpoints[index], equal);
    let found: Vec<usize> = (0..endpoints.len()).filter(serves).collect();
    if found.is_empty() { Err(Unreachable::NoEndpoint) } else { Ok(found) }
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
    fn one_side_sets_a_policy() {
        assert_eq!(reconcile::<u8>(&[], &[]), Ok(&[][..]));
        assert_eq!(reconcile(&[1], &[]), Ok(&[1][..]));
        assert_eq!(reconcile(&[], &[2]), Ok(&[2][..]));
        assert_eq!(reconcile(&[1], &[1]), Err(Unreachable::Conflict));
    }

    #[test]
    fn bands_need_a_model_and_the_priority_in_one() {
        let bands = PriorityBands::new([(5, 15), (25, 35)]).unwrap();
        assert_eq!(band(None, None, p(3)), Ok(None));
        assert_eq!(band(None, Some(&bands), p(5)), Err(Unreachable::BandsWithoutModel));
        assert_eq!(band(CLIENT, Some(&bands), p(20)), Err(Unreachable::OutsideBands));
        assert_eq!(band(SERVER, Some(&bands), p(30)).unwrap().unwrap().high, p(35));
    }

    #[test]
    fn endpoints_are_those_of_the_priority() {
        let lanes = [10, 20, 30];
        assert_eq!(endpoints(None, None, p(7), &lanes), Ok(vec![0, 1, 2]));
        assert_eq!(endpoints(SERVER, None, p(7), &[-1, -1]), Ok(vec![0, 1]));
        assert_eq!(endpoints(CLIENT, None, p(20), &lanes), Ok(vec![1]));
        assert_eq!(endpoints(CLIENT, None, p(21), &lanes), Err(Unreachable::NoEndpoint));
        assert_eq!(endpoints(CLIENT, None, p(21), &[-1]), Ok(vec![0]));
        assert_eq!(endpoints(CLIENT, None, p(21), &[-1, -1]), Ok(vec![0, 1]));
        assert_eq!(endpoints(CLIENT, None, p(21), &[-1, 20]), Err(Unreachable::NoEndpoint));
        let band = PriorityBand::new(15, 30).unwrap();
        assert_eq!(endpoints(CLIENT, Some(band), p(16), &lanes), Ok(vec![1, 2]));
        assert_eq!(endpoints(CLIENT, None, p(0), &[]), Err(Unreachable::NoEndpoint));
    }
}
