//! A partition that a consumer reads, in no consumer group.
//!
//! librdkafka assigns partitions only to members of a group: it looks for the group's coordinator, and brokers make the
//! topic `__consumer_offsets` for that. So partitions are started one by one, with its older interface.

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings::{
    rd_kafka_consume_start, rd_kafka_consume_stop, rd_kafka_last_error, rd_kafka_topic_destroy, rd_kafka_topic_new,
    rd_kafka_topic_t,
};
use rdkafka::consumer::Consumer as _;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;

use super::BaseConsumer;
use super::refusal::Refusals;

/// A partition that a consumer reads from an offset on. Another reading of it is with another consumer. Dropping it ends the
/// reading.
pub(crate) struct Reading {
    /// Dropped before the queue, which has the consumer.
    topic: Topic,
    queue: PartitionQueue<Refusals>,
    partition: i32,
}

/// The handle by which librdkafka knows a topic.
struct Topic(*mut rd_kafka_topic_t);

// SAFETY: librdkafka locks what it points to.
unsafe impl Send for Topic {}
// SAFETY: as above.
unsafe impl Sync for Topic {}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: it was made by `rd_kafka_topic_new`, and is not used any more.
        unsafe { rd_kafka_topic_destroy(self.0) }
    }
}

impl Reading {
    /// Starts to read.
    ///
    /// # Errors
    /// The topic's name or the partition is not valid.
    pub(crate) fn start(
        consumer: &Arc<BaseConsumer>,
        topic: &str,
        partition: i32,
        offset: u64,
    ) -> Result<Self, KafkaError> {
        let name = CString::new(topic)?;
        // SAFETY: the client lives as long as the consumer, and the name is copied. Without a configuration the topic has
        // the client's.
        let known = unsafe { rd_kafka_topic_new(consumer.client().native_ptr(), name.as_ptr(), ptr::null_mut()) };
        if known.is_null() {
            return Err(last_error());
        }
        let known = Topic(known);
        // Before the first record comes.
        let queue = consumer.split_partition_queue(topic, partition);
        let queue = queue.ok_or(KafkaError::MessageConsumption(RDKafkaErrorCode::UnknownPartition))?;
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        // SAFETY: the topic is the one that was just made.
        match unsafe { rd_kafka_consume_start(known.0, partition, offset) } {
            0 => Ok(Self {
                topic: known,
                queue,
                partition,
            }),
            _ => Err(last_error()),
        }
    }

    /// The next record, or an error of the partition: waits so long for one.
    pub(crate) fn poll(&self, wait: Duration) -> Option<Result<BorrowedMessage<'_>, KafkaError>> {
        self.queue.poll(wait)
    }

    /// Has a function called, on a thread of librdkafka, when something comes and there was nothing.
    pub(crate) fn on_records(&mut self, call: impl Fn() + Send + Sync + 'static) {
        self.queue.set_nonempty_callback(call);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: it was started, and the queue's consumer still lives. It returns when no more records come; the partition is
        // known, so that it does not fail.
        unsafe {
            rd_kafka_consume_stop(self.topic.0, self.partition);
        }
    }
}

fn last_error() -> KafkaError {
    // SAFETY: it only reads the thread's last error.
    KafkaError::MessageConsumption(unsafe { rd_kafka_last_error() }.into())
}
