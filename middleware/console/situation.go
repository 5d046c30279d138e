package console

// situation is what an entry means to a request that waits for it.
type situation string

const (
	situationHeld       situation = "held"
	situationRunning    situation = "running"
	situationUnanswered situation = "unanswered"
	situationUnknown    situation = "outcome-unknown"
	situationCooldown   situation = "cool-down"
	situationAnswer     situation = "stored-answer"
	situationUnreadable situation = "unreadable"
)

// Label is what the page calls it.
func (s situation) Label() string {
	return map[situation]string{
		situationHeld:       "Held",
		situationRunning:    "Running",
		situationUnanswered: "Being cleaned up",
		situationUnknown:    "Outcome unknown",
		situationCooldown:   "Cool-down",
		situationAnswer:     "Stored answer",
		situationUnreadable: "Unreadable",
	}[s]
}
