// Types of what the page's modules share. They hold for the checker (`make lint`) and for readers; no browser loads them.

/** Times are ns since the trace's start: whole numbers below 2^53, so exact as numbers. */
type Ns = number;

/** A place among the lanes, the hosts of the trace; NO_LANE for a host that was not captured. */
type LaneNumber = number;

/** A place among the rows of the timeline; NO_ROW for none. */
type RowNumber = number;

/** Columns of arrows, generated from viewer/binary.py. */
type ArrowColumns = import("./constants.js").ArrowColumns;

/** What viewer/layout.py (`page_meta`) describes the trace by. */
interface Meta {
  made: string; // the revision
  startNs: string;
  duration: Ns;
  lanes: string[];
  pairs: [LaneNumber, LaneNumber][]; // between which packets pass
  pairServices: [number, number][]; // places in `services`, or NO_SERVICE
  services: string[];
  pairProcesses: [number, number][]; // places in `processes`
  processes: string[]; // none if no owner of a connection is known
  ends: [LaneNumber, number, number][] | null; // where counts are kept by end: lane, service and process
  laneGroups: Record<string, string[]>; // for each way to group: the group of each lane
  typical: Ns[]; // delay, for each of `pairs`
  kinds: string[];
  messages: string[]; // of WebSocket, by the bits of `Arrows.messages`
  states: string[];
  classCounts: string[];
  hops: number;
  roots: number;
  requests: number;
  rulerHeight: number; // px
  clocksApart: Ns;
  firstHop: Ns;
  command: { lane: LaneNumber; from: Ns; to: Ns; text: string } | null;
  faults: Mark[];
  findings: Mark[];
  load: Mark[];
  uncovered?: Mark[];
  strips: string[];
  parts: Record<string, Tree[]>;
  requestTimes: [number, Ns, Ns][];
  followed?: boolean;
}

/** A stretch of time on a lane, with a text about it: a finding, a fault, a step of the load. */
interface Mark {
  kind: string;
  lane: LaneNumber;
  from: Ns;
  to: Ns;
  text: string;
}

/** A line of a log, or a span of another tracer. */
interface Annotation {
  number: number;
  kind: "log" | "span";
  lane: LaneNumber;
  from: Ns;
  to: Ns;
  error: Ns | null; // ±; null if not known
  name: string;
  isError: boolean;
  request: number; // -1 for none
  format: string;
  joinedBy: string | null;
  line: number; // below its host's
}

/** Those of a window: each, or, where there are many, cells of lane, bin, how many, how many errors. */
interface AnnotationsShown {
  from: Ns;
  to: Ns;
  each: Annotation[] | null;
  bin: Ns;
  cells: [LaneNumber, number, number, number][];
}

/** A text, or an element: tag, attributes, children (viewer/serialise.py). */
type Tree = string | [string, Record<string, any>, Tree[]];

/** The header of a message (viewer/binary.py). */
interface MessageHeader {
  mode: "arrows" | "density" | "ends" | "usage" | "bands";
  from: Ns;
  to: Ns;
  count?: number;
  columns: { name: string; dtype: string; offset: number; length: number }[];
}

/** What the page adds to a message. */
interface Loaded {
  requestedWidth?: Ns; // of the view that it was loaded for
  raw?: boolean;
  only?: string;
  rows?: number[]; // rows whose counts are there
  arranged?: number; // version of the rows
  picture?: HTMLCanvasElement | null;
}

/** Arrows one by one. Those with a missing end are given one (`withEnds`); rows are those of now (`placeArrows`). */
interface Arrows extends ArrowColumns {
  mode?: string;
  from?: Ns;
  to?: Ns;
  count?: number;
  source: Uint16Array;
  target: Uint16Array;
  begin: Float64Array;
  end: Float64Array;
  byClass: number[][];
  fromRow: Int16Array;
  toRow: Int16Array;
  placed?: number;
}

/** Counts by pair (or row and direction), class and bin. */
interface Counts {
  mode: string;
  from: Ns;
  to: Ns;
  count: number;
  bin: Ns;
  bins: number;
  pairs: number;
  classes: number;
  step: number;
  cells: Uint32Array;
  counts: Uint8Array | Uint16Array | Uint32Array;
  rows?: number[];
  byClass?: Float64Array[];
}

/** Requests that hosts served, by row and bin: how many were under way, how many at once, how slow (in hundredths). */
interface Bands {
  from: Ns;
  to: Ns;
  bin: Ns;
  bins: number;
  mostAtOnce: number;
  requests: Uint32Array;
  atOnce: Uint32Array;
  ratio: Uint16Array;
  served: Uint8Array; // by row: whether its hosts served any
  rows: RowNumber[];
  arranged: number; // version of the rows
  made: string;
  requestedWidth: Ns;
}

/** A bin of a row's band. */
interface BandBin {
  row: RowNumber;
  from: Ns;
  to: Ns;
  requests: number;
  atOnce: number;
  ratio: number; // 0 for none
}

/** Counts with a sample of the arrows, or arrows; what the page draws. `mode` distinguishes them. */
type Message = MessageHeader & Loaded & Omit<Arrows, "mode" | "byClass"> & Omit<Counts, "mode" | "byClass"> & { byClass: any };

/** Where times and rows are on the canvas (`makeView`). */
interface View {
  from: Ns;
  to: Ns;
  width: number;
  height: number;
  ruler?: number; // px on top that belong to the axis
  rows?: number;
  gap: number; // px between rows
  top: number;
  bar?: number; // px of a full bar of counts
  content?: number; // px that all rows take
  scroll?: number;
  strips?: number;
  x: (time: Ns) => number;
  y: (row: RowNumber) => number;
  time?: (x: number) => Ns;
  shows?: (row: RowNumber) => boolean;
}

/** By what a host is split into rows. */
type SplitWay = "services" | "processes";

/** A row of the timeline: a host, a service or a process of a host, a group of hosts, or hosts that the user has merged. */
interface Row {
  kind: "host" | "service" | "process" | "group" | "merged";
  lanes: LaneNumber[]; // whose packets end at it
  lane?: LaneNumber;
  service?: number;
  process?: number;
  name?: string;
  open?: boolean;
  size?: number;
  inGroup?: boolean;
  split?: boolean;
}

/** What is shown, and what is loaded for it. */
interface State {
  from: Ns;
  to: Ns;
  view: View | null;
  data: Message | null;
  picture: HTMLCanvasElement | null;
  still: { from: Ns; to: Ns; bins: number; picture: HTMLCanvasElement } | null; // arrows, for a gesture to stretch
  overview: Message | null;
  overviewPicture: HTMLCanvasElement | null;
  selected: Message | null;
  hidden: Set<number>; // classes
  raw: boolean; // by the hosts' own clocks
  only: string; // a search: of its requests only are packets shown; "" for all
  hover: number | null;
  selection: { request: number | null; hop: number | null };
  moving: boolean;
  usage: any;
  withBands: boolean; // how slow and how many requests are, before the counts of packets
  bands: Bands | null;
  origins: Uint8Array | null; // by request whose it is, where arrows are coloured by it
  withAnnotations: boolean; // lines of logs and spans of other tracers, below the hosts' lines
  annotations: AnnotationsShown | null;
  annotation: number; // the selected one; -1 for none
  settledCount: number;
  settledAt: number; // ms
}

type AddressState = Pick<State, "from" | "to" | "selection" | "hidden">;

/** A part of the page's address. */
interface AddressPart {
  read(text: string | null): void;
  write(): string;
}

/** What the parts of the page beside the timeline may do with it. */
interface Timeline {
  select(request: number | null, hop: number | null): void;
  glide(from: Ns, to: Ns): void;
  showOnly(query: string): void;
  renew(meta: Meta, from: Ns, to: Ns, wanted: () => boolean): Promise<boolean>;
  scrollLanes(px: number): void;
  scrollToRow(row: RowNumber): void;
}

/** How arrows are drawn. */
interface ArrowOptions {
  hidden: Set<number>;
  alpha: number;
  grow?: number; // factor of the width of lines
  moving?: boolean;
  keep?: (at: number) => boolean;
  origins?: Uint8Array | null; // to be coloured by
}

interface Window {
  twintap: object;
  dash_clientside: any;
  dash_stores: any[];
  Plotly: any;
}

/** What the timeline is drawn on. */
type CanvasContext = CanvasRenderingContext2D | import("../draw/svg.js").SvgContext;

/** Of a picture of counts or arrows: the times that it covers, and its width in px. */
type Picture = Pick<Counts, "from" | "to" | "bins">;

/** Of the ruler: times, their texts, and what the texts count from, if not from the start. */
interface Ticks {
  values: Ns[];
  texts: string[];
  base: string;
}
