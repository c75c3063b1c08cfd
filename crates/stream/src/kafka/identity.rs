//! The identity of a topic: it differs from that of another topic with the same name. A topic that was deleted and
//! made again assigns its offsets again.

use std::ffi::CString;
use std::ptr;
use std::time::Duration;

use rdkafka::bindings::{
    rd_kafka_AdminOptions_destroy, rd_kafka_AdminOptions_new, rd_kafka_AdminOptions_set_request_timeout,
    rd_kafka_DescribeTopics, rd_kafka_DescribeTopics_result_topics, rd_kafka_TopicCollection_destroy,
    rd_kafka_TopicCollection_of_topic_names, rd_kafka_TopicDescription_error, rd_kafka_TopicDescription_topic_id,
    rd_kafka_Uuid_least_significant_bits, rd_kafka_Uuid_most_significant_bits, rd_kafka_admin_op_t,
    rd_kafka_error_code, rd_kafka_event_DescribeTopics_result, rd_kafka_event_destroy, rd_kafka_event_error,
    rd_kafka_queue_destroy, rd_kafka_queue_new, rd_kafka_queue_poll,
};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;

use super::BaseConsumer;

/// The identity that the brokers have given a topic; `None` if they have given none, as those before Kafka 2.8 do.
///
/// # Errors
/// No answer within the timeout, or an error that a broker answered.
pub(super) fn identity_of(consumer: &BaseConsumer, topic: &str, timeout: Duration) -> Result<Option<u128>, KafkaError> {
    let topic = CString::new(topic)?;
    let timeout_ms = timeout.as_millis() as i32;
    let client = consumer.client().native_ptr();
    // SAFETY: the client lives as long as the consumer. All that is made here is destroyed here, after its last use.
    // The request has copies of the topic's name and of the options. An answer after the timeout goes to the queue,
    // which librdkafka keeps until then.
    unsafe {
        let mut names = [topic.as_ptr()];
        let topics = rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let options = rd_kafka_AdminOptions_new(client, rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        // A timeout that is refused is the default one: the answer is not waited for any longer.
        let _ = rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, ptr::null_mut(), 0);
        let queue = rd_kafka_queue_new(client);
        rd_kafka_DescribeTopics(client, topics, options, queue);
        let event = rd_kafka_queue_poll(queue, timeout_ms);
        let mut identity = Err(RDKafkaErrorCode::OperationTimedOut);
        if !event.is_null() {
            identity = Err(rd_kafka_event_error(event).into());
            let answer = rd_kafka_event_DescribeTopics_result(event);
            let mut count = 0;
            let found = match answer.is_null() {
                true => ptr::null_mut(),
                false => rd_kafka_DescribeTopics_result_topics(answer, &mut count),
            };
            if count == 1 && !found.is_null() {
                let found = *found;
                let error = rd_kafka_error_code(rd_kafka_TopicDescription_error(found));
                identity = Err(error.into());
                if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                    let id = rd_kafka_TopicDescription_topic_id(found);
                    let most = rd_kafka_Uuid_most_significant_bits(id) as u64;
                    let least = rd_kafka_Uuid_least_significant_bits(id) as u64;
                    let id = u128::from(most) << 64 | u128::from(least);
                    identity = Ok(Some(id).filter(|&id| id != 0));
                }
            }
            rd_kafka_event_destroy(event);
        }
        rd_kafka_queue_destroy(queue);
        rd_kafka_AdminOptions_destroy(options);
        rd_kafka_TopicCollection_destroy(topics);
        match identity {
            Err(RDKafkaErrorCode::UnsupportedFeature | RDKafkaErrorCode::UnsupportedVersion) => Ok(None),
            answer => answer.map_err(KafkaError::MetadataFetch),
        }
    }
}
