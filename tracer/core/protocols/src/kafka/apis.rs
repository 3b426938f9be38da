//! The requests of Kafka: their numbers, names and versions.
//!
//! Source: Kafka 4.1, `clients/src/main/resources/common/message`; versions that newer brokers dropped are those of 2.0.

/// A kind of request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Api {
    pub name: &'static str,
    /// Newest version; a few more may come.
    newest: u16,
}

/// Newer versions than those known that are still taken for Kafka's.
const VERSIONS_TO_COME: u16 = 4;

/// Requests that their broker answers when there is news, or when the other members of a group have asked, too.
const WAITING: &[&str] = &["Fetch", "JoinGroup", "ShareFetch", "SyncGroup"];

/// Requests that may hold passwords, or what proves to know one.
const SECRET: &[&str] = &[
    "SaslAuthenticate",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterUserScramCredentials",
    "RenewDelegationToken",
    "ExpireDelegationToken",
];

const fn api(name: &'static str, newest: u16) -> Api {
    Api { name, newest }
}

/// By their numbers.
const APIS: &[Api] = &[
    api("Produce", 13),
    api("Fetch", 18),
    api("ListOffsets", 11),
    api("Metadata", 13),
    api("LeaderAndIsr", 7),
    api("StopReplica", 4),
    api("UpdateMetadata", 8),
    api("ControlledShutdown", 3),
    api("OffsetCommit", 10),
    api("OffsetFetch", 10),
    api("FindCoordinator", 6),
    api("JoinGroup", 9),
    api("Heartbeat", 4),
    api("LeaveGroup", 5),
    api("SyncGroup", 5),
    api("DescribeGroups", 6),
    api("ListGroups", 5),
    api("SaslHandshake", 1),
    api("ApiVersions", 4),
    api("CreateTopics", 7),
    api("DeleteTopics", 6),
    api("DeleteRecords", 2),
    api("InitProducerId", 6),
    api("OffsetForLeaderEpoch", 4),
    api("AddPartitionsToTxn", 5),
    api("AddOffsetsToTxn", 4),
    api("EndTxn", 5),
    api("WriteTxnMarkers", 2),
    api("TxnOffsetCommit", 5),
    api("DescribeAcls", 3),
    api("CreateAcls", 3),
    api("DeleteAcls", 3),
    api("DescribeConfigs", 4),
    api("AlterConfigs", 2),
    api("AlterReplicaLogDirs", 2),
    api("DescribeLogDirs", 4),
    api("SaslAuthenticate", 2),
    api("CreatePartitions", 3),
    api("CreateDelegationToken", 3),
    api("RenewDelegationToken", 2),
    api("ExpireDelegationToken", 2),
    api("DescribeDelegationToken", 3),
    api("DeleteGroups", 2),
    api("ElectLeaders", 2),
    api("IncrementalAlterConfigs", 1),
    api("AlterPartitionReassignments", 1),
    api("ListPartitionReassignments", 0),
    api("OffsetDelete", 0),
    api("DescribeClientQuotas", 1),
    api("AlterClientQuotas", 1),
    api("DescribeUserScramCredentials", 0),
    api("AlterUserScramCredentials", 0),
    api("Vote", 2),
    api("BeginQuorumEpoch", 1),
    api("EndQuorumEpoch", 1),
    api("DescribeQuorum", 2),
    api("AlterPartition", 3),
    api("UpdateFeatures", 2),
    api("Envelope", 0),
    api("FetchSnapshot", 1),
    api("DescribeCluster", 2),
    api("DescribeProducers", 0),
    api("BrokerRegistration", 4),
    api("BrokerHeartbeat", 2),
    api("UnregisterBroker", 0),
    api("DescribeTransactions", 0),
    api("ListTransactions", 2),
    api("AllocateProducerIds", 0),
    api("ConsumerGroupHeartbeat", 1),
    api("ConsumerGroupDescribe", 1),
    api("ControllerRegistration", 0),
    api("GetTelemetrySubscriptions", 0),
    api("PushTelemetry", 0),
    api("AssignReplicasToDirs", 0),
    api("ListConfigResources", 1),
    api("DescribeTopicPartitions", 0),
    api("ShareGroupHeartbeat", 1),
    api("ShareGroupDescribe", 1),
    api("ShareFetch", 2),
    api("ShareAcknowledge", 2),
    api("AddRaftVoter", 1),
    api("RemoveRaftVoter", 0),
    api("UpdateRaftVoter", 0),
    api("InitializeShareGroupState", 0),
    api("ReadShareGroupState", 1),
    api("WriteShareGroupState", 1),
    api("DeleteShareGroupState", 0),
    api("ReadShareGroupStateSummary", 1),
    api("StreamsGroupHeartbeat", 0),
    api("StreamsGroupDescribe", 0),
    api("DescribeShareGroupOffsets", 1),
    api("AlterShareGroupOffsets", 0),
    api("DeleteShareGroupOffsets", 0),
];

/// The number of `Produce`.
pub(super) const PRODUCE: u16 = 0;

/// The kind of a request with this number and version; `None` if Kafka has none.
#[inline]
pub(super) fn find(number: u16, version: u16) -> Option<&'static Api> {
    APIS.get(usize::from(number))
        .filter(|api| version <= api.newest + VERSIONS_TO_COME)
}

/// The name of a kind of request; empty for another number.
pub(super) fn name(number: u16) -> &'static str {
    APIS.get(usize::from(number)).map_or("", |api| api.name)
}

/// Whether such a request waits for news, so that how long it takes shows nothing of its broker.
pub(super) fn is_waiting(number: u16) -> bool {
    APIS.get(usize::from(number))
        .is_some_and(|api| WAITING.contains(&api.name))
}

impl Api {
    /// Whether such a request may hold a secret.
    pub fn is_secret(&self) -> bool {
        SECRET.contains(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_version_that_it_has_are_a_request() {
        let name = |number, version| find(number, version).map(|api| api.name);
        assert_eq!(name(18, 4), Some("ApiVersions"));
        assert_eq!(name(36, 2), Some("SaslAuthenticate"));
        assert_eq!(name(68, 1), Some("ConsumerGroupHeartbeat"));
        assert_eq!((name(12, 9), name(APIS.len() as u16, 0)), (None, None));
    }

    #[test]
    fn what_waits_for_news_is_known() {
        let waiting: Vec<&str> = (0..APIS.len() as u16)
            .filter(|&number| is_waiting(number))
            .map(|number| APIS[usize::from(number)].name)
            .collect();
        assert_eq!(waiting, ["Fetch", "JoinGroup", "SyncGroup", "ShareFetch"]);
    }
}
