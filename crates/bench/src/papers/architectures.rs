//! The benchmark `architectures`, which measures the time per call of 1 to 16 client threads with
//! every dispatch architecture.

use crate::Failure;
use crate::client_threads::client_threads;
use crate::harness::Progress;
use crate::options::BenchOptions;
use crate::orb::ServerArchitecture;
use crate::report::Report;

pub(crate) fn architectures(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let all = [
        ServerArchitecture::PerConnection,
        ServerArchitecture::LeaderFollowers(options.threads),
        ServerArchitecture::HalfSync(options.threads),
        ServerArchitecture::Reactive,
    ];
    for threads in [1, 4, 16] {
        client_threads("architectures", threads, &all, options, report, progress)?;
    }
    Ok(())
}
