// SPDX-License-Identifier: GPL-2.0
// The dumbbell of test_ns3.py in ns-3: bulk TCP flows, one per pair of hosts, over one bottleneck.
//
//   dumbbell_ns3 newreno|dctcp FLOWS HOST_GBPS BOTTLENECK_GBPS HOP_US QUEUE_PACKETS MARK_PACKETS
//   END_MS WARMUP_MS
//
// Prints a line of JSON: bits per second that arrived, mean bytes in the bottleneck's queue, both
// since the warm-up; events and CPU seconds of the whole run. A packet has 1500 bytes on each link,
// as in remora-sim. DCTCP's queue is a RED queue discipline with both thresholds at MARK_PACKETS
// and no averaging, on a device that holds one packet.
#include <ctime>
#include <iostream>
#include <string>

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

using namespace ns3;

namespace {

constexpr uint32_t packet_bytes = 1500;
constexpr uint32_t header_bytes = 20 + 20 + 2; // IPv4, TCP without options, PPP

// The time integral of a queue's length.
struct Area {
    double byte_seconds = 0, since = 0;
    uint32_t bytes = 0;

    void changed(uint32_t, uint32_t now) {
        advance();
        bytes = now;
    }
    void advance() {
        double time = Simulator::Now().GetSeconds();
        byte_seconds += bytes * (time - since);
        since = time;
    }
};

struct Setup {
    std::string kind;
    uint32_t flows;
    double host_gbps, bottleneck_gbps, hop_us;
    uint32_t queue_packets, mark_packets;
    double end_ms, warmup_ms;

    bool dctcp() const { return kind == "dctcp"; }
};

void set_defaults(const Setup& setup) {
    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       StringValue(setup.dctcp() ? "ns3::TcpDctcp" : "ns3::TcpNewReno"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(packet_bytes - header_bytes));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(64 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(64 << 20));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(10)));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(setup.dctcp() ? "On" : "Off"));
}

NetDeviceContainer connect(Ptr<Node> a, Ptr<Node> b, double gbps, double hop_us, uint32_t packets) {
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(gbps * 1e9))));
    link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(static_cast<uint64_t>(hop_us * 1e3))));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize",
                  QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, packets)));
    return link.Install(a, b);
}

// A discipline that marks, before the bottleneck's device.
void install_marking(const Setup& setup, NetDeviceContainer bottleneck, Area& area) {
    TrafficControlHelper control;
    control.SetRootQueueDisc(
        "ns3::RedQueueDisc", "MinTh", DoubleValue(setup.mark_packets), "MaxTh",
        DoubleValue(setup.mark_packets), "QW", DoubleValue(1), "UseEcn", BooleanValue(true),
        "UseHardDrop", BooleanValue(false), "Gentle", BooleanValue(false), "LinkBandwidth",
        DataRateValue(DataRate(static_cast<uint64_t>(setup.bottleneck_gbps * 1e9))), "LinkDelay",
        TimeValue(MicroSeconds(static_cast<uint64_t>(setup.hop_us))), "MaxSize",
        QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, setup.queue_packets)));
    QueueDiscContainer installed = control.Install(bottleneck.Get(0));
    installed.Get(0)->TraceConnectWithoutContext("BytesInQueue",
                                                 MakeCallback(&Area::changed, &area));
}

void run(const Setup& setup) {
    set_defaults(setup);
    NodeContainer left, right, switches;
    left.Create(setup.flows);
    right.Create(setup.flows);
    switches.Create(2);
    constexpr uint32_t plenty = 1'000'000;
    Area area, discipline_area;
    NetDeviceContainer bottleneck = connect(switches.Get(0), switches.Get(1), setup.bottleneck_gbps,
                                            setup.hop_us, setup.dctcp() ? 1 : setup.queue_packets);
    std::vector<NetDeviceContainer> links{bottleneck};
    for (uint32_t i = 0; i < setup.flows; i++) {
        links.push_back(
            connect(left.Get(i), switches.Get(0), setup.host_gbps, setup.hop_us, plenty));
        links.push_back(
            connect(right.Get(i), switches.Get(1), setup.host_gbps, setup.hop_us, plenty));
    }
    InternetStackHelper().InstallAll();
    if (setup.dctcp())
        install_marking(setup, bottleneck, discipline_area);
    DynamicCast<PointToPointNetDevice>(bottleneck.Get(0))
        ->GetQueue()
        ->TraceConnectWithoutContext("BytesInQueue", MakeCallback(&Area::changed, &area));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    std::vector<Ipv4InterfaceContainer> interfaces;
    for (const NetDeviceContainer& link : links) {
        interfaces.push_back(addresses.Assign(link));
        addresses.NewNetwork();
    }
    if (!setup.dctcp()) { // Assign() has given each device a queue discipline: they have queues
        TrafficControlHelper control;
        for (const NetDeviceContainer& link : links)
            control.Uninstall(link);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    ApplicationContainer sinks;
    for (uint32_t i = 0; i < setup.flows; i++) {
        InetSocketAddress to(interfaces[2 + 2 * i].GetAddress(0), 9);
        sinks.Add(PacketSinkHelper("ns3::TcpSocketFactory", to).Install(right.Get(i)));
        BulkSendHelper source("ns3::TcpSocketFactory", to);
        source.SetAttribute("SendSize", UintegerValue(packet_bytes - header_bytes));
        source.Install(left.Get(i));
    }
    std::clock_t begun = std::clock();
    Simulator::Stop(MicroSeconds(static_cast<uint64_t>(setup.warmup_ms * 1e3)));
    Simulator::Run();
    for (Area* one : {&area, &discipline_area}) {
        one->advance();
        one->byte_seconds = 0;
    }
    std::vector<uint64_t> before;
    for (uint32_t i = 0; i < setup.flows; i++)
        before.push_back(DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx());
    double seconds = (setup.end_ms - setup.warmup_ms) / 1e3;
    Simulator::Stop(MicroSeconds(static_cast<uint64_t>(seconds * 1e6)));
    Simulator::Run();
    area.advance();
    discipline_area.advance();
    double cpu = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < setup.flows; i++)
        bytes += DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx() - before[i];
    std::cout << "{\"throughput_bps\":" << static_cast<double>(bytes) * 8 / seconds
              << ",\"mean_queue_bytes\":"
              << (area.byte_seconds + discipline_area.byte_seconds) / seconds
              << ",\"events\":" << Simulator::GetEventCount() << ",\"cpu_seconds\":" << cpu
              << "}\n";
    Simulator::Destroy();
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 10) {
        std::cerr << "dumbbell_ns3: takes 9 arguments, see its source\n";
        return 2;
    }
    Setup setup{argv[1],
                static_cast<uint32_t>(std::stoul(argv[2])),
                std::stod(argv[3]),
                std::stod(argv[4]),
                std::stod(argv[5]),
                static_cast<uint32_t>(std::stoul(argv[6])),
                static_cast<uint32_t>(std::stoul(argv[7])),
                std::stod(argv[8]),
                std::stod(argv[9])};
    run(setup);
    return 0;
}
