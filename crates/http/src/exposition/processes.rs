//! The metrics of the process.

use std::fmt;

use fondaco_os::process;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::encoding::{counter, gauge};

/// The standard process metrics of Prometheus clients, and some more.
pub(super) fn metrics(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if let Some((minor, major)) = process::page_faults() {
        counter(encoder, "minor_page_faults", "page faults answered from memory", minor)?;
        counter(encoder, "major_page_faults", "page faults that read the disk", major)?;
    }
    let (mappings, mappings_max) = fondaco_format::mappings();
    let help = "memory mappings used by files of versions";
    gauge(encoder, "version_mappings", help, mappings)?;
    let help = "limit of memory mappings for files of versions, most of vm.max_map_count";
    gauge(encoder, "version_mappings_max", help, mappings_max)?;
    let help = "pages of mapped files of versions that could not be read";
    counter(
        encoder,
        "version_unreadable_pages",
        help,
        fondaco_format::unreadable_pages(),
    )?;
    let help = "reads of files of versions past the page cache";
    counter(encoder, "version_direct_reads", help, fondaco_format::direct_reads())?;
    let gauges = [
        (
            "process_resident_memory_bytes",
            "resident memory, mapped files included",
            process::resident_bytes(),
        ),
        (
            "process_virtual_memory_bytes",
            "virtual memory",
            process::virtual_bytes(),
        ),
        (
            "process_open_fds",
            "files that the process has open",
            process::open_files(),
        ),
        (
            "process_max_fds",
            "files that the process may have open",
            process::open_files_max(),
        ),
        ("process_threads", "threads of the process", process::threads()),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode_gauge(&value)?;
        }
    }
    if let Some(started) = process::started_unix_seconds() {
        let help = "when the process started, in seconds since 1970";
        let mut metric = encoder.encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?;
        metric.encode_gauge(&started)?;
    }
    if let Some(seconds) = process::cpu_seconds() {
        let help = "processor time used";
        let mut metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
    }
    Ok(())
}
