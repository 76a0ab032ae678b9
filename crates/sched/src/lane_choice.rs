//! Valid combinations of a POA's real-time policies, and the lane and priority of each request.
//!
//! | pool | model | bands | execution of a request |
//! |---|---|---|---|
//! | lanes | none | | refused when the POA is created |
//! | lanes | server declared | no | in the lane of exactly the object's priority |
//! | lanes | server declared | yes | in the lane of the object's priority, else in the lowest lane inside the object's band |
//! | lanes | client propagated | no | in the lane of the client's priority, else in the lowest lane inside the band that the client declared for the connection |
//! | lanes | client propagated | yes | in the lane of the client's priority, else in the lowest lane inside the band that contains it |
//! | no lanes | none | no | at the pool's default priority |
//! | no lanes | server declared | | at the object's priority |
//! | no lanes | client propagated | | at the client's priority, which must be in a band if there are bands |
//! | no lanes | none | yes | refused when the POA is created |
//!
//! For a client that sends no priority, the POA's server priority replaces the client's priority.
//! If no lane serves this priority, the request runs in the lowest lane or, if there are bands, in
//! the lowest lane inside a band. In a pool with lanes, a request is refused if the table gives no
//! lane for its client's priority, and each other request runs at the priority of its lane.

use std::fmt;

use crate::bands::{PriorityBand, PriorityBands};
use crate::priority::Priority;

/// The side that determines the priority of a request (`RTCORBA::PriorityModel`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PriorityModel {
    /// The client's thread determines the priority.
    ClientPropagated,
    /// The server determines the priority for each object.
    ServerDeclared,
}

impl PriorityModel {
    /// Returns the number of the model on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            PriorityModel::ClientPropagated => 0,
            PriorityModel::ServerDeclared => 1,
        }
    }

    /// Returns the model with this wire number, or `None` if it is undefined.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(PriorityModel::ClientPropagated),
            1 => Some(PriorityModel::ServerDeclared),
            _ => None,
        }
    }
}

/// Value of a `PriorityModelPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PriorityModelPolicy {
    /// The side that determines the priority of a request.
    pub model: PriorityModel,
    /// The priority of objects without a priority (server declared), or for clients that send none
    /// (client propagated).
    pub server_priority: Priority,
}

/// Policies of a POA that determine the lane and the priority of a request.
#[derive(Clone, Copy, Debug)]
pub struct LanePolicies<'p> {
    /// The priority model; `None` if the POA has none.
    pub model: Option<PriorityModelPolicy>,
    /// The priority bands; `None` if the POA has none.
    pub bands: Option<&'p PriorityBands>,
    /// The priorities of the pool's lanes; empty for a pool without lanes.
    pub lanes: &'p [Priority],
}

/// An invalid combination of policies, or a priority that the policies do not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyViolation {
    /// A pool with lanes needs a priority model.
    LanesWithoutModel,
    /// Bands need a priority model.
    BandsWithoutModel,
    /// The priority is in no band.
    OutsideBands,
    /// A band contains no lane's priority.
    BandWithoutLane,
    /// No lane has the priority.
    NoLane,
}

impl fmt::Display for PolicyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyViolation::LanesWithoutModel => "a pool with lanes needs a priority model",
            PolicyViolation::BandsWithoutModel => "priority bands need a priority model",
            PolicyViolation::OutsideBands => "the priority is in no band",
            PolicyViolation::BandWithoutLane => "no lane is in one of the bands",
            PolicyViolation::NoLane => "no lane has the priority",
        })
    }
}

impl std::error::Error for PolicyViolation {}

/// The lane and the priority at which a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneChoice {
    /// Index of the lane; `None` in a pool without lanes.
    pub lane: Option<usize>,
    /// The priority of the upcall; `None` without a priority model.
    pub priority: Option<Priority>,
}

impl LanePolicies<'_> {
    /// Checks that the combination of policies is valid.
    ///
    /// # Errors
    /// The first violated rule.
    pub fn check(&self) -> Result<(), PolicyViolation> {
        let Some(declared) = self.model else {
            return match (self.lanes.is_empty(), self.bands) {
                (false, _) => Err(PolicyViolation::LanesWithoutModel),
                (true, Some(_)) => Err(PolicyViolation::BandsWithoutModel),
                (true, None) => Ok(()),
            };
        };
        if let Some(bands) = self.bands
            && !self.lanes.is_empty()
            && bands.as_slice().iter().any(|band| !self.lanes.iter().any(|lane| band.contains(*lane)))
        {
            return Err(PolicyViolation::BandWithoutLane);
        }
        if declared.model != PriorityModel::ServerDeclared {
            return Ok(());
        }
        match self.bands {
            Some(bands) if bands.band_of(declared.server_priority).is_none() => Err(PolicyViolation::OutsideBands),
            Some(_) => Ok(()),
            None => self.lane_of(declared.server_priority, None).map(drop),
        }
    }

    /// Checks that the policies allow an object to have the priority `priority`.
    ///
    /// # Errors
    /// [`PolicyViolation::NoLane`] or [`PolicyViolation::OutsideBands`].
    pub fn check_object_priority(&self, priority: Priority) -> Result<(), PolicyViolation> {
        if !self.lanes.is_empty() && !self.lanes.contains(&priority) {
            return Err(PolicyViolation::NoLane);
        }
        match self.bands {
            Some(bands) if bands.band_of(priority).is_none() => Err(PolicyViolation::OutsideBands),
            _ => Ok(()),
        }
    }

    /// Returns the index of the lane that serves a priority; `None` in a pool without lanes.
    /// `bound` is the band that the client declared for the request's connection.
    fn lane_of(&self, priority: Priority, bound: Option<PriorityBand>) -> Result<Option<usize>, PolicyViolation> {
        if self.lanes.is_empty() {
            return Ok(None);
        }
        if let Some(exact) = self.lanes.iter().position(|lane| *lane == priority) {
            return Ok(Some(exact));
        }
        let band = match self.bands {
            Some(bands) => bands.band_of(priority).ok_or(PolicyViolation::OutsideBands)?,
            None => bound.filter(|band| band.contains(priority)).ok_or(PolicyViolation::NoLane)?,
        };
        let within = (0..self.lanes.len()).filter(|&lane| band.contains(self.lanes[lane]));
        within.min_by_key(|&lane| self.lanes[lane]).map(Some).ok_or(PolicyViolation::BandWithoutLane)
    }

    /// Chooses the lane and the priority of a request. `asked` is the client's priority, and
    /// `object` the priority set for the object. `bound` is the band that the client declared for
    /// its connection. This band applies if the policies have no bands.
    ///
    /// # Errors
    /// [`PolicyViolation`] if the client's priority is in no band, or if no lane serves this
    /// priority. If no lane serves a priority that the server determines, the request runs in the
    /// lowest lane or, if there are bands, in the lowest lane inside a band.
    pub fn choose_lane(
        &self,
        asked: Option<Priority>,
        object: Option<Priority>,
        bound: Option<PriorityBand>,
    ) -> Result<LaneChoice, PolicyViolation> {
        let Some(declared) = self.model else { return Ok(LaneChoice { lane: None, priority: None }) };
        let (priority, is_clients) = match (declared.model, asked) {
            (PriorityModel::ServerDeclared, _) => (object.unwrap_or(declared.server_priority), false),
            (PriorityModel::ClientPropagated, Some(asked)) => (asked, true),
            (PriorityModel::ClientPropagated, None) => (declared.server_priority, false),
        };
        if is_clients && self.bands.is_some_and(|bands| bands.band_of(priority).is_none()) {
            return Err(PolicyViolation::OutsideBands);
        }
        let lane = match self.lane_of(priority, bound) {
            Err(_) if !is_clients => self.lowest(),
            found => found?,
        };
        let priority = lane.and_then(|lane| self.lanes.get(lane).copied()).unwrap_or(priority);
        Ok(LaneChoice { lane, priority: Some(priority) })
    }

    /// Returns the indices of the lanes whose endpoints a reference contains, by increasing
    /// priority; none without a priority model. `object` is the priority set for the object. With a
    /// server-declared priority the result is the lane that serves the object. With a
    /// client-propagated priority it is all lanes or, if the policies have bands, all lanes inside
    /// a band.
    #[must_use]
    pub fn published_lanes(&self, object: Option<Priority>) -> Vec<usize> {
        let Some(declared) = self.model else { return Vec::new() };
        if declared.model == PriorityModel::ServerDeclared {
            return self.choose_lane(None, object, None).ok().and_then(|choice| choice.lane).into_iter().collect();
        }
        self.eligible()
    }

    fn eligible(&self) -> Vec<usize> {
        let is_in = |lane: &Priority| self.bands.is_none_or(|bands| bands.band_of(*lane).is_some());
        let mut eligible = Vec::new();
        for (lane, priority) in self.lanes.iter().enumerate().filter(|(_, priority)| is_in(priority)) {
            let at = eligible.partition_point(|&other: &usize| self.lanes[other] <= *priority);
            eligible.insert(at, lane);
        }
        eligible
    }

    fn lowest(&self) -> Option<usize> {
        self.eligible().first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(number: i16) -> Priority {
        Priority::new(number).unwrap()
    }

    fn declared(model: PriorityModel, priority: i16) -> Option<PriorityModelPolicy> {
        Some(PriorityModelPolicy { model, server_priority: p(priority) })
    }

    const CLIENT: PriorityModel = PriorityModel::ClientPropagated;
    const SERVER: PriorityModel = PriorityModel::ServerDeclared;

    #[test]
    fn create_poa_checks_every_policy_rule() {
        let lanes = [p(10), p(20), p(30)];
        let bands = |pairs: &[(i16, i16)]| PriorityBands::new(pairs.iter().copied()).unwrap();
        let covering = bands(&[(1, 14), (15, 24), (25, 32767)]);
        let bare = bands(&[(1, 14), (40, 50)]);
        let check = |model, bands, lanes: &[Priority]| LanePolicies { model, bands, lanes }.check();
        assert_eq!(check(None, None, &[]), Ok(()));
        assert_eq!(check(None, None, &lanes), Err(PolicyViolation::LanesWithoutModel));
        assert_eq!(check(None, Some(&covering), &lanes), Err(PolicyViolation::LanesWithoutModel));
        assert_eq!(check(None, Some(&covering), &[]), Err(PolicyViolation::BandsWithoutModel));
        for model in [declared(CLIENT, 10), declared(SERVER, 10)] {
            assert_eq!(check(model, Some(&bare), &lanes), Err(PolicyViolation::BandWithoutLane));
            assert_eq!(check(model, Some(&covering), &lanes), Ok(()));
            assert_eq!(check(model, Some(&bare), &[]), Ok(()));
        }
        assert_eq!(check(declared(SERVER, 0), Some(&covering), &lanes), Err(PolicyViolation::OutsideBands));
        assert_eq!(check(declared(SERVER, 15), Some(&bare), &[]), Err(PolicyViolation::OutsideBands));
        assert_eq!(check(declared(SERVER, 15), None, &lanes), Err(PolicyViolation::NoLane));
        assert_eq!(check(declared(SERVER, 15), Some(&covering), &lanes), Ok(()));
        assert_eq!(check(declared(CLIENT, 15), None, &lanes), Ok(()));
        assert_eq!(check(declared(SERVER, 15), None, &[]), Ok(()));
    }

    #[test]
    fn objects_have_priorities_of_lanes_and_bands_only() {
        let bands = PriorityBands::new([(1, 14), (15, 24)]).unwrap();
        let of = |bands, lanes: &[Priority], number| {
            LanePolicies { model: declared(SERVER, 10), bands, lanes }.check_object_priority(p(number))
        };
        assert_eq!(of(None, &[p(10), p(20)], 20), Ok(()));
        assert_eq!(of(None, &[p(10), p(20)], 15), Err(PolicyViolation::NoLane));
        assert_eq!(of(Some(&bands), &[], 15), Ok(()));
        assert_eq!(of(Some(&bands), &[], 25), Err(PolicyViolation::OutsideBands));
        assert_eq!(of(Some(&bands), &[p(10), p(20)], 15), Err(PolicyViolation::NoLane));
    }

    #[test]
    fn a_request_runs_where_the_table_says() {
        let lanes = [p(30), p(10), p(20)];
        let bands = PriorityBands::new([(5, 15), (25, 35)]).unwrap();
        for asked in Priority::all() {
            let choose = |model, bands, lanes: &[Priority], object| {
                LanePolicies { model, bands, lanes }
                    .choose_lane(Some(asked), object, None)
                    .map(|choice| (choice.lane, choice.priority))
            };
            assert_eq!(choose(None, None, &[], None), Ok((None, None)));
            assert_eq!(choose(declared(SERVER, 10), None, &lanes, None), Ok((Some(1), Some(p(10)))));
            assert_eq!(choose(declared(SERVER, 10), None, &lanes, Some(p(30))), Ok((Some(0), Some(p(30)))));
            assert_eq!(choose(declared(SERVER, 12), Some(&bands), &lanes, None), Ok((Some(1), Some(p(10)))));
            assert_eq!(choose(declared(SERVER, 12), None, &[], None), Ok((None, Some(p(12)))));
            assert_eq!(choose(declared(CLIENT, 12), None, &[], None), Ok((None, Some(asked))));
            let exact = match asked.get() {
                30 => Ok((Some(0), Some(asked))),
                10 => Ok((Some(1), Some(asked))),
                20 => Ok((Some(2), Some(asked))),
                _ => Err(PolicyViolation::NoLane),
            };
            assert_eq!(choose(declared(CLIENT, 10), None, &lanes, None), exact);
            let banded = match asked.get() {
                5..=15 => Ok((Some(1), Some(p(10)))),
                25..=35 => Ok((Some(0), Some(p(30)))),
                _ => Err(PolicyViolation::OutsideBands),
            };
            assert_eq!(choose(declared(CLIENT, 10), Some(&bands), &lanes, None), banded);
            let unlaned = if bands.band_of(asked).is_some() {
                Ok((None, Some(asked)))
            } else {
                Err(PolicyViolation::OutsideBands)
            };
            assert_eq!(choose(declared(CLIENT, 10), Some(&bands), &[], None), unlaned);
        }
    }

    #[test]
    fn request_without_priority_runs_in_the_server_lane_or_the_lowest() {
        let lanes = [p(30), p(10), p(20)];
        let of = |number| {
            LanePolicies { model: declared(CLIENT, number), bands: None, lanes: &lanes }
                .choose_lane(None, None, None)
                .unwrap()
        };
        assert_eq!((of(20).lane, of(20).priority), (Some(2), Some(p(20))));
        assert_eq!((of(7).lane, of(7).priority), (Some(1), Some(p(10))));
        for (lanes, lowest) in [([p(10), p(30)], 0), ([p(30), p(10)], 1)] {
            let policies = LanePolicies { model: declared(CLIENT, 7), bands: None, lanes: &lanes };
            assert_eq!(policies.choose_lane(None, None, None).unwrap().lane, Some(lowest));
        }
    }

    #[test]
    fn references_name_the_lanes_that_serve_them() {
        let lanes = [p(30), p(10), p(20)];
        let bands = PriorityBands::new([(5, 15), (25, 35)]).unwrap();
        let of = |model, bands, object| LanePolicies { model, bands, lanes: &lanes }.published_lanes(object);
        assert_eq!(of(declared(CLIENT, 10), None, None), [1, 2, 0]);
        assert_eq!(of(declared(CLIENT, 10), Some(&bands), None), [1, 0]);
        assert_eq!(of(declared(SERVER, 20), None, None), [2]);
        assert_eq!(of(declared(SERVER, 20), None, Some(p(30))), [0]);
    }

    #[test]
    fn models_have_the_numbers_of_the_specification() {
        assert_eq!((CLIENT.number(), SERVER.number()), (0, 1));
        let read = [0, 1, 2, u32::MAX].map(PriorityModel::from_number);
        assert_eq!(read, [Some(CLIENT), Some(SERVER), None, None]);
    }

    #[test]
    fn every_violation_has_a_different_text() {
        let texts: Vec<String> = [
            PolicyViolation::LanesWithoutModel,
            PolicyViolation::BandsWithoutModel,
            PolicyViolation::OutsideBands,
            PolicyViolation::BandWithoutLane,
            PolicyViolation::NoLane,
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        for (index, text) in texts.iter().enumerate() {
            assert!(!text.is_empty() && !texts[..index].contains(text), "{text:?}");
        }
    }
}
