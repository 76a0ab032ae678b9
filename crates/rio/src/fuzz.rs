//! Entry points for fuzzing: functions over bytes that must return for any input.

use crate::steering::check::SteeringPair;
use crate::steering::scenario::Scenario;

/// Sends frames, including malformed ones, through the steering program under an interpreter and
/// through its specification.
///
/// # Panics
/// If the program makes a forbidden access, or differs from the specification.
pub fn rio_frames(input: &[u8]) {
    let scenario = Scenario::read(input, 2);
    let mut pair = SteeringPair::new(scenario.steering);
    for arrival in &scenario.arrivals {
        pair.steer(&arrival.frame, arrival.queue, arrival.now);
    }
    pair.compare_counts();
}
