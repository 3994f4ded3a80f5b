package wire

// Member is one member of the store's cluster.
type Member struct {
	ID       string   `json:"id" doc:"16 hex digits" example:"8e9e05c52164694d"`
	Name     string   `json:"name" doc:"Name of its server; empty until it has started" example:"fenced-1"`
	PeerURLs []string `json:"peer_urls" doc:"Where the other members reach it"`
	Voter    bool     `json:"voter" doc:"Whether it counts for the quorum; a new member does once it has caught up"`
	Leader   bool     `json:"leader" doc:"Whether it leads the store"`
}

// MemberList is the answer of GET /v1/members.
type MemberList struct {
	Members []Member `json:"members" doc:"In the order of the store"`
}

// MemberRequest is the body of POST /v1/members.
type MemberRequest struct {
	PeerURL string `json:"peer_url" doc:"Where the other members will reach the new one: http:// or https:// with a host and a port" minLength:"1" example:"https://10.0.0.4:7422"`
}

// Compacted is the answer of POST /v1/compact.
type Compacted struct {
	Revision int64 `json:"revision" doc:"The store's history before it is gone" example:"7341"`
}
